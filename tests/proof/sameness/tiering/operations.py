"""The calls that only a manager of several tiers gets, and the events of its tiers."""

from dataclasses import dataclass
from typing import Any

from vllm.v1.kv_offload.base import ScheduleEndContext

from ..host.operations import Answer, Operation
from ..host.scenario import key_of
from .tiers import CLOCK


@dataclass(frozen=True)
class Wait(Operation):
    """Lets time pass on both sides."""

    milliseconds: int

    def given(self) -> None:
        CLOCK.now += self.milliseconds / 1_000

    def run(self, side: Any, given: Any) -> Answer:
        return None


@dataclass(frozen=True)
class EndStep(Operation):
    new_requests: tuple[int, ...]

    def run(self, side: Any, given: Any) -> Answer:
        names = [f"request-{request}" for request in self.new_requests]
        side.manager.on_schedule_end(ScheduleEndContext(names, []))


@dataclass(frozen=True)
class FinishJob(Operation):
    """Ends a running job of a tier for ``all`` of its keys, ``some`` or ``none``."""

    tier: int
    place: int
    outcome: str = "all"

    def applies(self, side: Any) -> bool:
        return bool(side.tiers[self.tier].running)

    def run(self, side: Any, given: Any) -> Answer:
        side.tiers[self.tier].finish(self.place, self.outcome)


@dataclass(frozen=True)
class AskFromOutside(Operation):
    """Another server asks a tier for keys. The tier serves it at the end of the step, or when it is
    polled."""

    tier: int
    name: str
    keys: tuple[int, ...]

    def run(self, side: Any, given: Any) -> Answer:
        side.tiers[self.tier].waiting.append((self.name, list(given)))


@dataclass(frozen=True)
class ReadAbsentChunk(Operation):
    """Reads a chunk for another tier that the primary tier does not have."""

    request: int

    def run(self, side: Any, given: Any) -> Answer:
        return side.primary.prepare_read([key_of(10**9)], side.contexts[self.request])


@dataclass(frozen=True)
class Poll(Operation):
    def run(self, side: Any, given: Any) -> Answer:
        with side.manager.lock:
            side.manager.poll_tiers()


@dataclass(frozen=True)
class EndReset(Operation):
    def run(self, side: Any, given: Any) -> Answer:
        side.manager.on_reset_flushed()


@dataclass(frozen=True)
class GetLoadSource(Operation):
    request: int
    keys: tuple[int, ...]

    def run(self, side: Any, given: Any) -> Answer:
        return [side.manager.get_load_source(key, side.contexts[self.request]) for key in given]


@dataclass(frozen=True)
class GetConfigInfo(Operation):
    def run(self, side: Any, given: Any) -> Answer:
        return side.manager.config_info()
