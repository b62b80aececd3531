"""Tests of Python code that raises or makes calls in the middle of a call of the host tier, of a
panic of the engine, and of threads that share a tier."""

import threading
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kvoxide import (
    BlockHasher,
    BusyError,
    HostRequest,
    HostTier,
    HostTransfer,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheManager,
    PoisonedError,
    Request,
)

from tests.package.api.test_host_tier import key, keys, store
from tests.package.api.test_threads import retried

Then = Callable[[], Any]


class World:
    """A tier in the middle of its work."""

    def __init__(self) -> None:
        self.tier: Any = HostTier(8, store_threshold=2, enable_kv_cache_events=True)
        self.request = HostRequest()
        for _ in range(2):
            self.tier.prepare_store(self.request, keys(range(6)))
        self.tier.complete_store(keys(range(4)))
        self.tier.prepare_load(self.request, keys([0, 1]))

    def state(self) -> Any:
        tier = self.tier
        return tier.get_chunks(), tier.get_lru_order(), tier.get_tracked_offers()


def faulty(numbers: list[int], then: Then) -> Iterator[bytes]:
    """Yield keys, and do something else after the second."""
    for place, number in enumerate(numbers):
        if place == 2:
            then()
        yield key(number)


class Position:
    """An int-like whose value is computed by Python code."""

    def __init__(self, then: Then) -> None:
        self._then = then

    def __index__(self) -> int:
        self._then()
        return 16


CALLS: dict[str, Callable[[World, Then], Any]] = {
    "load": lambda w, then: w.tier.prepare_load(w.request, faulty([0, 1, 2], then)),
    "end a load": lambda w, then: w.tier.complete_load(faulty([0, 1, 1], then)),
    "read": lambda w, then: w.tier.prepare_read(faulty([0, 1, 2], then)),
    "end a read": lambda w, then: w.tier.complete_read(faulty([0, 1, 1], then)),
    "store": lambda w, then: w.tier.prepare_store(w.request, faulty([0, 6, 7], then)),
    "store with positions": lambda w, then: w.tier.prepare_store(
        w.request, keys([6]), {key(6): Position(then)}
    ),
    "end a store": lambda w, then: w.tier.complete_store(faulty([3, 4, 5], then)),
    "look up": lambda w, then: w.tier.lookup_prefix(faulty([0, 1, 2], then)),
    "look a window up": lambda w, then: w.tier.lookup_window(faulty([0, 1, 2], then), 1, 1),
    "note loads": lambda w, then: w.tier.set_loading(faulty([0, 1, 2], then), True),
    "ask for loads": lambda w, then: w.tier.is_any_loading(faulty([0, 1, 2], then)),
    "touch": lambda w, then: w.tier.touch(faulty([0, 1, 2], then)),
    "end": lambda w, then: w.tier.finish_request(w.request, {key(0): Position(then)}),
}


@pytest.mark.parametrize("fault", [KeyboardInterrupt, MemoryError, RuntimeError, StopIteration])
@pytest.mark.parametrize("call", CALLS)
def test_an_exception_is_passed_on_and_changes_nothing(
    call: str, fault: type[BaseException]
) -> None:
    def fail() -> None:
        raise fault("planted")

    world = World()
    before = world.state()
    # A generator turns StopIteration into a RuntimeError.
    with pytest.raises((fault, RuntimeError)):
        CALLS[call](world, fail)
    assert world.state() == before


@pytest.mark.parametrize("call", CALLS)
def test_a_call_from_within_is_refused_and_changes_nothing(call: str) -> None:
    world = World()
    before = world.state()
    with pytest.raises(BusyError, match="the host tier is in the middle of another call"):
        CALLS[call](world, world.tier.reset)
    assert world.state() == before


def nothing() -> None:
    """Do nothing."""


def request() -> Request:
    return Request("a", range(40), block_hasher=BlockHasher(16))


def paired() -> tuple[Any, KVCacheManager]:
    """Return a tier, and a manager that decides together with it."""
    config = KVCacheConfig(9, [KVCacheGroupSpec("full_attention", 16)])
    manager, tier = KVCacheManager(config, 256), HostTier(8, "adaptive")
    tier.decide_with(manager)
    return tier, manager


# Calls under adaptive: all are refused in a poisoned tier.
ADAPTIVE: dict[str, Callable[[Any, KVCacheManager, HostTransfer], Any]] = {
    "pair": lambda tier, manager, _: tier.decide_with(manager),
    "look up": lambda tier, manager, _: tier.lookup_request(
        request(), manager.empty_kv_cache_blocks, 0
    ),
    "start": lambda tier, *_: tier.start_load(request()),
    "step": lambda tier, *_: tier.prepare_step(),
    "complete": lambda tier, _, transfer: tier.complete(transfer),
    "part": lambda tier, *_: tier.decide_alone(),
}


@pytest.mark.parametrize("name", ADAPTIVE)
def test_calls_with_a_manager_are_refused_after_a_panic(name: str) -> None:
    tier, manager = paired()
    transfer = tier.prepare_step().during
    with pytest.raises(PoisonedError, match="planted by a test"):
        tier._panic_for_tests()
    with pytest.raises(PoisonedError, match="the host tier is poisoned and refuses every call"):
        ADAPTIVE[name](tier, manager, transfer)
    assert manager.allocate_slots(request(), 40) is not None


@pytest.mark.parametrize("name", ["look up", "step", "part"])
def test_calls_with_a_poisoned_manager_are_refused(name: str) -> None:
    tier, manager = paired()
    transfer, blocks = tier.prepare_step().during, manager.empty_kv_cache_blocks
    with pytest.raises(PoisonedError, match="planted by a test"):
        manager._panic_for_tests()  # type: ignore[attr-defined]
    world = SimpleNamespace(empty_kv_cache_blocks=blocks)
    with pytest.raises(PoisonedError, match="the manager is poisoned and refuses every call"):
        ADAPTIVE[name](tier, world, transfer)  # type: ignore[arg-type]


READS: dict[str, Callable[[World], Any]] = {
    "start": lambda w: w.tier.start_request(w.request),
    "lookup": lambda w: w.tier.lookup(key(0)),
    "reset": lambda w: w.tier.reset(),
    "events": lambda w: w.tier.take_events(),
    "skipped": lambda w: w.tier.take_num_skipped(),
    "sizes": lambda w: w.tier.take_store_sizes(),
    "chunks": lambda w: w.tier.get_chunks(),
    "order": lambda w: w.tier.get_lru_order(),
    "lists": lambda w: w.tier.get_arc_lists(),
    "offers": lambda w: w.tier.get_tracked_offers(),
    "policy": lambda w: w.tier.policy,
    "number": lambda w: w.tier.num_chunks,
    "free": lambda w: w.tier.num_free_chunks,
    "allocated": lambda w: w.tier.num_allocated_chunks,
    "evictable": lambda w: w.tier.num_evictable_chunks,
    "pending": lambda w: w.tier.num_pending_chunks,
    "loading": lambda w: w.tier.num_loading_keys,
    "transferred": lambda w: w.tier.num_transferred_chunks,
}
CHANGES: dict[str, Callable[[World, Then], Any]] = CALLS | {
    "end a load": lambda w, _: w.tier.complete_load(keys([0, 1])),
    "end a read": lambda w, _: w.tier.complete_read(keys([0, 1])),
}


def call(name: str, world: World) -> Any:
    return READS[name](world) if name in READS else CHANGES[name](world, nothing)


@pytest.mark.parametrize("name", [*READS, *CHANGES])
def test_every_call_works_before_a_panic_and_is_refused_after(name: str) -> None:
    call(name, World())
    world = World()
    with pytest.raises(PoisonedError, match="planted by a test"):
        world.tier._panic_for_tests()
    with pytest.raises(PoisonedError, match="the host tier is poisoned and refuses every call"):
        call(name, world)


def test_no_method_is_left_out() -> None:
    codes = [call.__code__ for call in READS.values()] + [call.__code__ for call in CALLS.values()]
    codes += [call.__code__ for call in ADAPTIVE.values()]
    tested = {name for code in codes for name in code.co_names}
    public = {name for name in dir(HostTier) if not name.startswith("_")}
    assert public == tested & public


def test_a_request_of_a_poisoned_tier_starts_anew_in_another() -> None:
    world = World()
    with pytest.raises(PoisonedError):
        world.tier._panic_for_tests()
    assert store(HostTier(2), [1, 2], world.request) == [0, 1]


def test_threads_that_hammer_one_tier() -> None:
    tier: Any = HostTier(50, "arc", enable_kv_cache_events=True)
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        rng = Random(thread)
        try:
            for _ in range(200):
                request = HostRequest()
                first = 1_000 * thread + rng.randrange(100)
                plan = retried(tier.prepare_store, request, keys(range(first, first + 5)))
                if plan is not None:
                    retried(tier.complete_store, plan.keys, rng.random() < 0.9)
                retried(tier.finish_request, request)
                retried(tier.take_events)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(timeout=60)
        assert not one.is_alive()
    assert failures == []
    chunk_ids = [chunk for chunk, _ in tier.get_chunks().values()]
    assert len(set(chunk_ids)) == len(chunk_ids) == tier.num_evictable_chunks
    assert tier.num_free_chunks + len(chunk_ids) == 50
