"""Code that the tests of standstills share: a scheduler, and time that a test moves."""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.vllm.environment import counters  # noqa: E402
from kvoxide.vllm.plugin.standstill import episodes  # noqa: E402
from vllm.v1.request import RequestStatus, StreamingUpdate  # noqa: E402

from tests.testing.clock import Clock  # noqa: E402
from tests.testing.small_world import BLOCK_SIZE  # noqa: E402
from tests.vllm.scheduler_world import SchedulerWorld  # noqa: E402

MODES = pytest.mark.parametrize("mode", ["require", "shadow", "off"])


class World:
    """A scheduler whose steps take as long as a test says."""

    def __init__(self, clock: Clock, *specs: Any, **changes: Any) -> None:
        defaults = {"num_blocks": 11, "reserves_full_input": True}
        self._inside = SchedulerWorld(*specs, **{**defaults, **changes})
        self._clock = clock
        self.scheduler = self._inside.scheduler
        self.add, self.abort = self._inside.add, self._inside.abort

    def step(self, seconds: float = 0.1, loaded: Iterable[str] = ()) -> Any:
        self._clock.now += seconds
        return self._inside.step(loaded)

    def steps(self, seconds: float, each: float = 0.1) -> None:
        """Make steps for so many seconds."""
        end = self._clock.now + seconds
        while self._clock.now < end:
            self.step(each)

    def session(self, name: str, prompt: list[int]) -> Any:
        """Add a session with streaming input, and let it wait for its client."""
        request = self.add(name, prompt, 1)
        request.resumable = True
        request.streaming_queue = deque()
        while request.status != RequestStatus.WAITING_FOR_STREAMING_REQ:
            self.step()
        return request

    def continue_session(self, request: Any, more: list[int]) -> None:
        update = StreamingUpdate(
            mm_features=None,
            prompt_token_ids=more,
            max_tokens=1,
            arrival_time=0.0,
            sampling_params=request.sampling_params,
        )
        self.scheduler._update_request_as_session(request, update)


def tokens(num_blocks: int, start: int = 0) -> list[int]:
    return list(range(start, start + num_blocks * BLOCK_SIZE))


def standing() -> set[str]:
    """Return the reasons whose gauge is 1."""
    values = counters.gauges()["kvoxide_standstill"]
    assert {dict(labels)["reason"] for labels in values} == set(episodes.REASONS)
    return {dict(labels)["reason"] for labels, value in values.items() if value}


def two_sessions(world: World) -> None:
    """Add two sessions. Each holds 4 blocks of 10 and wants 4 more."""
    sessions = [world.session(name, tokens(4, at)) for name, at in (("first", 0), ("second", 1000))]
    for number, session in enumerate(sessions):
        world.continue_session(session, tokens(4, 1000 * number + 500))


class Output:
    def __init__(self, future: Future[object]) -> None:
        self._future = future

    @property
    def grammar(self) -> object:
        return self._future.result() if self._future.done() else None
