"""What vLLM's or a connector's own code raises or does in the middle of a call: kvoxide's manager
is as it was before, or it says that it is poisoned."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from kvoxide import BusyError, PoisonedError
from vllm.plugins import load_general_plugins

load_general_plugins()

from tests.testing.small_world import config, full, make_manager, make_request, window  # noqa: E402

TOKENS = list(range(7_000_000, 7_000_200))
FAULTS = [ValueError, KeyboardInterrupt, SystemExit, MemoryError]


class Faulty:
    """A request of vLLM's that does something when attribute ``name`` is read."""

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
    """A residency collector that does something when it is told of anything."""

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
        """None if the manager is poisoned."""
        try:
            self.engine.check_invariants()
            pool = self.pool
            numbers = (len(pool.kv_event_queue), len(pool._reuse_watchers))
            return self.engine.state_digest(), sorted(self.engine.request_ids()), numbers
        except PoisonedError:
            return None


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


def attributes_read(call: str, *, events: bool) -> list[str]:
    """What the call reads of its request, told by calling it."""
    world = World(events=events)
    name, action = OF_REQUESTS[call]
    request = Faulty(getattr(world, name))
    action(world, request)
    return sorted(set(request.read))


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("call", OF_REQUESTS)
def test_a_request_whose_attribute_raises(call: str, events: bool) -> None:
    name, action = OF_REQUESTS[call]
    names = attributes_read(call, events=events)
    assert "request_id" in names
    for attribute in names:
        for fault in FAULTS:

            def fail(fault: type[BaseException] = fault) -> None:
                raise fault("planted")

            world = World(events=events)
            before = world.state()
            with pytest.raises(fault, match="planted"):
                action(world, Faulty(getattr(world, name), attribute, fail))
            after = world.state()
            assert after == before or (events and after is None), attribute
            if after is not None:
                action(world, getattr(world, name))
                assert world.state() is not None


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("call", OF_REQUESTS)
def test_a_request_whose_attribute_calls_the_manager(call: str, events: bool) -> None:
    """An error, or one call after the other."""
    name, action = OF_REQUESTS[call]
    for attribute in attributes_read(call, events=events):
        world = World(events=events)
        outcomes: list[object] = []

        def call_again(world: World = world, outcomes: list[object] = outcomes) -> None:
            if outcomes:
                return
            outcomes.append("refused")
            world.manager.free(world.other)
            outcomes[0] = "done"

        with suppress(BusyError):
            action(world, Faulty(getattr(world, name), attribute, call_again))
        assert outcomes in (["refused"], ["done"])
        after = world.state()
        assert after is not None or events
        if after is not None:
            assert (world.other.request_id in after[1]) == (outcomes == ["refused"])


class Hashes(Sequence[bytes]):
    """Block hashes that are no list, one of which is something else."""

    def __init__(
        self, hashes: list[bytes], index: int, item: Any, length: int | None = None
    ) -> None:
        self._hashes = hashes
        self._index = index
        self._item = item
        self._length = len(hashes) if length is None else length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index == self._index:
            return self._item() if callable(self._item) else self._item
        return self._hashes[index]


class NoLength:
    def __len__(self) -> int:
        raise RuntimeError("planted")


def raised() -> bytes:
    raise RuntimeError("planted")


Wrong = Callable[[list[bytes], int], Any]
WRONG_HASHES: dict[str, tuple[Wrong, type[BaseException]]] = {
    "an item raises": (lambda h, i: Hashes(h, i, raised), RuntimeError),
    "a text": (lambda h, i: Hashes(h, i, "text"), TypeError),
    "None": (lambda h, i: [*h[:i], None, *h[i + 1 :]], TypeError),
    "too short": (lambda h, i: [*h[:i], b"short", *h[i + 1 :]], ValueError),
    "too long": (lambda h, i: [*h[:i], b"x" * 33, *h[i + 1 :]], ValueError),
    "empty": (lambda h, i: [*h[:i], b"", *h[i + 1 :]], ValueError),
    "fewer than it says": (lambda h, i: Hashes(h[:i], -1, b"", len(h)), IndexError),
    "no length": (lambda h, i: NoLength(), RuntimeError),
    "a number": (lambda h, i: 7, TypeError),
}
HASH_CALLS: dict[str, tuple[str, int, RequestCall]] = {
    "look up": ("new", 4, OF_REQUESTS["look up"][1]),
    "admit": ("new", 4, OF_REQUESTS["admit"][1]),
    "admit, the last": ("new", 11, OF_REQUESTS["admit"][1]),
    "serve": ("running", 5, OF_REQUESTS["serve"][1]),
    "cache": ("running", 5, OF_REQUESTS["cache"][1]),
    "find": (
        "new",
        4,
        lambda w, r: w.manager.coordinator.find_longest_cache_hit(r.block_hashes, 190),
    ),
    "find per group": (
        "new",
        4,
        lambda w, r: w.manager.coordinator.find_longest_cache_hit_per_group(r.block_hashes, 190),
    ),
}


@pytest.mark.parametrize("wrong", WRONG_HASHES)
@pytest.mark.parametrize("call", HASH_CALLS)
def test_hashes_that_are_none(call: str, wrong: str) -> None:
    make, error = WRONG_HASHES[wrong]
    name, index, action = HASH_CALLS[call]
    world = World()
    request = getattr(world, name)
    before, good = world.state(), request.block_hashes
    request.block_hashes = make(list(good), index)
    with pytest.raises(error):
        action(world, request)
    assert world.state() == before
    request.block_hashes = good
    action(world, request)
    assert world.state() is not None


def test_a_refused_first_request_does_not_say_how_long_hashes_are() -> None:
    manager = make_manager()
    strange = make_request("strange", TOKENS)
    strange.block_hashes = [b"seven b", *strange.block_hashes[1:]]
    with pytest.raises(ValueError, match="a block hash has 32 bytes"):
        manager.allocate_slots(strange, 100)
    assert manager.engine.request_ids() == []
    assert manager.allocate_slots(make_request("usual", TOKENS), 200) is not None


class Block:
    """A block as a connector may wrap it, whose id is something else when it is read."""

    is_null = False

    def __init__(self, block: Any, then: Callable[[], Any]) -> None:
        self._block = block
        self._then = then

    def __getattr__(self, name: str) -> Any:
        self._then()
        return getattr(self._block, name)


Blocks = Callable[[World, Callable[[], Any]], Any]


def midway(blocks: Any, then: Callable[[], Any]) -> Iterator[Any]:
    yield blocks[0]
    then()
    yield from blocks[1:]


class Hit:
    """A hit of no class of ours."""

    def __init__(self, blocks: Any, then: Callable[[], Any]) -> None:
        self._blocks = blocks
        self._then = then

    @property
    def blocks(self) -> Any:
        self._then()
        return self._blocks


def cached_block(world: World) -> Any:
    return world.manager.get_blocks(world.running.request_id).blocks[0][0]


OF_BLOCKS: dict[str, Blocks] = {
    "touch": lambda w, then: w.pool.touch(midway(w.taken, then)),
    "touch an id": lambda w, then: w.pool.touch([w.taken[0], Block(w.taken[1], then)]),
    "free": lambda w, then: w.pool.free_blocks(midway(w.taken, then)),
    "free an id": lambda w, then: w.pool.free_blocks([w.taken[0], Block(w.taken[1], then)]),
    "unpin": lambda w, then: w.pool.unpin_blocks(midway(w.taken, then), print),
    "unpin an id": lambda w, then: w.pool.unpin_blocks([Block(w.taken[1], then)], print),
    "evict": lambda w, then: w.pool.evict_blocks(midway([1, 2, 3], then)),
    "evict by the manager": lambda w, then: w.manager.evict_blocks(midway([1, 2, 3], then)),
    "make blocks": lambda w, then: w.manager.create_kv_cache_blocks(
        (w.taken, midway(w.taken, then))
    ),
    "admit with a hit": lambda w, then: w.manager.allocate_slots(
        w.new, 30, 16, Hit(([cached_block(w)], [cached_block(w)]), then)
    ),
    "admit with a midway hit": lambda w, then: w.manager.allocate_slots(
        w.new, 30, 16, Hit(([cached_block(w)], midway([cached_block(w)], then)), lambda: None)
    ),
    "cut": lambda w, then: w.manager.truncate_computed_blocks(
        Hit(([cached_block(w)], [cached_block(w)]), then), 16
    ),
    "count": lambda w, then: w.manager.coordinator.get_num_blocks_to_allocate(
        "new", 30, ([cached_block(w)], midway([cached_block(w)], then)), 0, 16, 16, 30
    ),
    "add": lambda w, then: w.manager.empty_kv_cache_blocks + Hit(([], []), then),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", OF_BLOCKS)
def test_blocks_that_raise_midway(call: str, fault: type[BaseException]) -> None:
    def fail() -> None:
        raise fault("planted")

    world = World()
    before = world.state()
    with pytest.raises(fault, match="planted"):
        OF_BLOCKS[call](world, fail)
    assert world.state() == before


@pytest.mark.parametrize("call", OF_BLOCKS)
def test_blocks_that_call_the_manager_midway(call: str) -> None:
    world = World()
    came: list[bool] = []

    def call_again() -> None:
        if not came:
            came.append(True)
            with suppress(BusyError):
                world.manager.free(world.other)

    with suppress(BusyError):
        OF_BLOCKS[call](world, call_again)
    assert came
    assert world.state() is not None


OBSERVED: dict[str, Callable[[World], Any]] = {
    "take": lambda w: w.pool.get_new_blocks(40),
    "touch": lambda w: w.pool.touch([cached_block(w)]),
    "evict": lambda w: w.pool.evict_blocks([cached_block(w).block_id]),
    "admit": lambda w: w.manager.allocate_slots(w.new, 100),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", OBSERVED)
def test_a_collector_that_raises_poisons(call: str, fault: type[BaseException]) -> None:
    def fail() -> None:
        raise fault("planted")

    collector = Collector()
    world = World(collector=collector)
    collector.then = fail
    with pytest.raises(fault, match="planted"):
        OBSERVED[call](world)
    collector.then = lambda: None
    with pytest.raises(PoisonedError, match=rf"could not be told .*\({fault.__name__}: planted\)"):
        world.manager.allocate_slots(world.running, 1)
    assert world.state() is None


def test_a_collector_that_calls_the_manager_is_refused() -> None:
    collector = Collector()
    world = World(collector=collector)
    collector.then = lambda: world.pool.get_new_blocks(1)
    with pytest.raises(BusyError):
        world.pool.get_new_blocks(1)
    assert world.state() is None


def test_a_collector_may_look() -> None:
    collector = Collector()
    world = World(collector=collector)
    looks: list[int] = []
    collector.then = lambda: looks.append(world.pool.get_num_free_blocks())
    world.pool.get_new_blocks(1)
    assert looks
    assert set(looks) == {world.pool.get_num_free_blocks()}
    assert world.state() is not None


@pytest.mark.parametrize("fault", FAULTS)
def test_a_watcher_that_raises_poisons(fault: type[BaseException]) -> None:
    def fail(block: Any) -> None:
        raise fault("planted")

    world = World()
    world.pool.unpin_blocks(world.taken, fail)
    with pytest.raises(fault, match="planted"):
        world.pool.get_new_blocks(world.pool.get_num_free_blocks())
    assert world.state() is None


def test_a_watcher_that_raises_at_a_reset_poisons() -> None:
    def fail(block: Any) -> None:
        raise ValueError("planted")

    world = World()
    world.pool.unpin_blocks(world.taken, fail)
    for request in (world.running, world.other):
        world.manager.free(request)
    with pytest.raises(ValueError, match="planted"):
        world.manager.reset_prefix_cache()
    assert world.state() is None


def test_a_panic_poisons_every_call() -> None:
    world = World()
    blocks = world.manager.get_blocks(world.running.request_id)
    block = blocks.blocks[0][0]
    with pytest.raises(PoisonedError, match=r"_panic_for_tests panicked at .*planted by a test"):
        world.engine._panic_for_tests()
    refused: list[Callable[[], Any]] = [
        *(lambda n=n, c=c: c(world, getattr(world, n)) for n, c in OF_REQUESTS.values()),
        *(lambda c=c: c(world) for c in OBSERVED.values()),
        lambda: world.manager.usage,
        lambda: world.manager.get_block_ids(world.running.request_id),
        lambda: world.manager.take_new_block_ids(),
        lambda: world.manager.reset_prefix_cache(),
        lambda: world.pool.free_blocks(world.taken),
        lambda: world.pool.get_num_free_blocks(),
        lambda: world.pool.free_block_queue.get_all_free_blocks(),
        lambda: world.pool.cached_block_hash_to_block.get_one_block(world.cached + bytes(4)),
        lambda: block.ref_cnt,
        lambda: setattr(block, "ref_cnt", 1),
        lambda: block.reset_hash(),
    ]
    for call in refused:
        with pytest.raises(PoisonedError, match="planted by a test"):
            call()
    assert blocks.get_block_ids() is not None


def test_a_second_thread_is_refused_while_the_first_is_inside() -> None:
    world = World()
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        assert go_on.wait(30)

    request = Faulty(world.new, "num_prompt_tokens", wait)
    done: list[Any] = []
    first = threading.Thread(target=lambda: done.append(world.manager.allocate_slots(request, 50)))
    first.start()
    assert inside.wait(30)
    for call in (world.manager.take_new_block_ids, world.pool.get_num_free_blocks):
        with pytest.raises(BusyError, match="in the middle of another call"):
            call()
    go_on.set()
    first.join(30)
    assert [len(blocks) for blocks in done[0].blocks] == [4, 4]
    assert world.state() is not None


@pytest.mark.parametrize("events", [False, True])
def test_threads_that_hammer_one_manager(events: bool) -> None:
    manager = make_manager(enable_kv_cache_events=events)
    refused = [0]
    failures: list[BaseException] = []

    def switch() -> None:
        """Another thread gets its turn while this one is inside a call."""
        time.sleep(1e-5)

    def retried(call: Callable[..., Any], *args: Any) -> Any:
        while True:
            try:
                return call(*args)
            except BusyError:
                refused[0] += 1

    def work(thread: int) -> None:
        try:
            for number in range(60):
                tokens = TOKENS[: 20 + 7 * (number % 20)]
                request = Faulty(make_request(f"{thread}-{number}", tokens), "num_tokens", switch)
                if retried(manager.allocate_slots, request, len(tokens)) is not None:
                    request.num_computed_tokens = len(tokens)
                    retried(manager.get_block_ids, request.request_id)
                retried(manager.free, request)
                retried(manager.take_events)
        except BaseException as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=[i], daemon=True) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    finally:
        sys.setswitchinterval(before)
    assert failures == []
    assert refused[0] > 0
    manager.engine.check_invariants()
    assert manager.usage == 0.0
    assert manager.engine.request_ids() == []


def test_a_forked_child_has_a_manager_of_its_own() -> None:
    world = World(events=True)
    before = world.state()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            world.manager.free(world.running)
            assert world.manager.allocate_slots(world.new, 100) is not None
            world.engine.check_invariants()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert world.state() == before
    assert world.manager.allocate_slots(world.running, 10) is not None
