"""Draws calls of a manager of several tiers: the calls of one tier, and jobs between tiers."""

from vllm.v1.kv_offload.tiering.manager import TieringOffloadingManager

from ..host.operations import CompleteStore, End, Operation, Start
from ..host.traffic import MISUSE, Draw, Traffic, Transfer
from ..host.world import World
from .operations import (
    AskFromOutside,
    EndReset,
    EndStep,
    FinishJob,
    GetConfigInfo,
    GetLoadSource,
    Poll,
    ReadAbsentChunk,
    Wait,
)
from .scenario import TieringScenario


class TieringTraffic(Traffic):
    """Traffic of one scenario. vLLM's manager takes no request twice, no call of a request that it
    has forgotten, and the end of each store once."""

    def __init__(self, scenario: TieringScenario, beginning: int) -> None:
        super().__init__(scenario, beginning)
        self._tiers = range(scenario.num_tiers)
        self._is_polled = scenario.is_polled
        self._num_from_outside = 0
        self._new: list[int] = []

    def _draws(self) -> dict[Draw, float]:
        of_tiers: dict[Draw, float] = {
            self._finish_job: 30,
            self._ask_from_outside: 2,
            self._poll: 3 * (self._is_polled and hasattr(TieringOffloadingManager, "poll_tiers")),
        }
        of_release: dict[Draw, float] = {
            self._end_reset: 3 * hasattr(TieringOffloadingManager, "on_reset_flushed"),
            self._load_source: hasattr(TieringOffloadingManager, "get_load_source"),
            self._config_info: 0.2 * hasattr(TieringOffloadingManager, "config_info"),
        }
        return {
            self._prepare_store: 20,
            self._complete_store: 18,
            self._prepare_load: 10,
            self._complete_load: 11,
            self._look_up: 12,
            self._touch: 2,
            self._end: 4,
            self._reset: 0.3,
            self._events: 4,
            self._stats: 3,
            self._position: 1,
            self._misuse: 100 * MISUSE,
            self._read_absent: 100 * MISUSE,
            self._hand_over: 0.3 * self._scenario.hands_over,
            self._end_step: 14,
            self._wait: 5,
            **of_release,
            **(of_tiers if self._tiers else {}),
        }

    def _start(self) -> Operation:
        made = super()._start()
        assert isinstance(made, Start)
        self._new.append(made.new_request)
        return Start(made.new_request, made.positions)

    def _taken(self, transfers: list[Transfer]) -> Transfer:
        return transfers.pop(self._rng.randrange(len(transfers)))

    def _complete_store(self, world: World) -> Operation | None:
        if not self._stores:
            return None
        request, keys = self._taken(self._stores)
        return CompleteStore(request, keys, self._rng.random() < 0.9, self._collection())

    def _end(self, world: World) -> Operation:
        return End(self._running.pop(self._rng.randrange(len(self._running))))

    def _reset(self, world: World) -> Operation:
        self._stores.clear()
        return super()._reset(world)

    def _end_reset(self, world: World) -> Operation:
        return EndReset()

    def _end_step(self, world: World) -> Operation:
        new, self._new = self._new, []
        return EndStep(tuple(new))

    def _finish_job(self, world: World) -> Operation | None:
        job = FinishJob(
            self._rng.choice(self._tiers),
            self._rng.randrange(8),
            self._rng.choices(["all", "some", "none"], [8, 1, 1])[0],
        )
        return job if job.applies(world.reference) else None

    def _ask_from_outside(self, world: World) -> Operation:
        self._num_from_outside += 1
        keys = self._some_keys(self._rng.choice(self._running))
        return AskFromOutside(
            self._rng.choice(self._tiers), f"outside-{self._num_from_outside}", keys
        )

    def _poll(self, world: World) -> Operation:
        return Poll()

    def _load_source(self, world: World) -> Operation:
        request = self._rng.choice(self._running)
        return GetLoadSource(request, self._some_keys(request))

    def _config_info(self, world: World) -> Operation:
        return GetConfigInfo()

    def _read_absent(self, world: World) -> Operation:
        return ReadAbsentChunk(self._rng.choice(self._running))

    def _wait(self, world: World) -> Operation:
        return Wait(self._rng.choice([1, 5, 20, 3_000]))
