"""A manager in the middle of its work, with requests and observers that misbehave."""

from collections.abc import Callable
from typing import Any

from kvoxide import PoisonedError
from vllm.plugins import load_general_plugins

load_general_plugins()

from tests.testing.small_world import config, full, make_manager, make_request, window  # noqa: E402

TOKENS = list(range(7_000_000, 7_000_200))
FAULTS = [ValueError, KeyboardInterrupt, SystemExit, MemoryError]


class Faulty:
    """A request of vLLM's that does something when its attribute ``name`` is read."""

    def __init__(
        self, request: Any, name: str = "", then: Callable[[], Any] = lambda: None
    ) -> None:
        self.__dict__["_request"] = request
        self.__dict__["_name"] = name
        self.__dict__["_then"] = then
        self.__dict__["read"] = []

    def __getattr__(self, name: str) -> Any:
        self.read.append(name)
        if name == self._name:
            self._then()
        return getattr(self._request, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._request, name, value)


class Collector:
    """A residency collector that does something at each notification."""

    def __init__(self) -> None:
        self.then: Callable[[], Any] = lambda: None

    def on_block_allocated(self, block: Any) -> None:
        self.then()

    on_block_accessed = on_block_evicted = on_block_allocated

    def reset(self) -> None:
        self.then()


class World:
    """A manager in the middle of its work."""

    def __init__(self, *, events: bool = False, collector: Any = None) -> None:
        self.manager = make_manager(
            kv_cache_config=config(full(), window(), num_blocks=60),
            enable_kv_cache_events=events,
            metrics_collector=collector,
            watermark=0.01,
        )
        self.pool = self.manager.block_pool
        self.engine = self.manager.engine
        for name in ("seen", "running", "other"):
            setattr(self, name, self._admitted(name))
        self.manager.free(self.seen)
        self.manager.take_events()
        self.taken = self.pool.get_new_blocks(3)
        self.new = make_request("new", [*TOKENS, 1, 2, 3])
        self.cached = self.running.block_hashes[0]

    seen: Any
    running: Any
    other: Any

    def _admitted(self, name: str) -> Any:
        request = make_request(name, TOKENS[: 100 if name == "running" else 60])
        request.kv_cache_report_mode = "full"
        found, num_hit = self.manager.get_computed_blocks(request)[:2]
        num_new = request.num_tokens - num_hit
        assert self.manager.allocate_slots(request, num_new, num_hit, found) is not None
        request.num_computed_tokens = request.num_tokens
        return request

    def state(self) -> Any:
        """Return the state, or None if the manager is poisoned."""
        try:
            self.engine.check_invariants()
            pool = self.pool
            numbers = (len(pool.kv_event_queue), len(pool._reuse_watchers))
            return self.engine.state_digest(), sorted(self.engine.request_ids()), numbers
        except PoisonedError:
            return None


def cached_block(world: World) -> Any:
    return world.manager.get_blocks(world.running.request_id).blocks[0][0]


RequestCall = Callable[[World, Any], Any]
OF_REQUESTS: dict[str, tuple[str, RequestCall]] = {
    "look up": ("new", lambda w, r: w.manager.get_computed_blocks(r)),
    "look up a part": ("new", lambda w, r: w.manager.get_computed_blocks(r, 40)),
    "admit": ("new", lambda w, r: w.manager.allocate_slots(r, 50)),
    "serve": ("running", lambda w, r: w.manager.allocate_slots(r, 30)),
    "cache": ("running", lambda w, r: w.manager.cache_blocks(r, 96)),
    "cache by the coordinator": ("running", lambda w, r: w.manager.coordinator.cache_blocks(r, 96)),
    "estimate": ("running", lambda w, r: w.manager.estimate_cached_tokens(r)),
    "free": ("running", lambda w, r: w.manager.free(r)),
    "pop": ("running", lambda w, r: w.manager.pop_blocks_for_free(r)),
}
