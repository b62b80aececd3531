"""Tests of requests, hashes and blocks of vLLM's or a connector's that raise or make calls in the
middle of a call. Afterwards kvoxide's manager is unchanged, or it says that it is poisoned."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from kvoxide import BusyError

from tests.testing.small_world import make_manager, make_request
from tests.vllm.faulty_world import (
    FAULTS,
    OF_REQUESTS,
    TOKENS,
    Faulty,
    RequestCall,
    World,
    cached_block,
)


def attributes_read(call: str, *, events: bool) -> list[str]:
    """Return the attributes of its request that a call reads, found by calling it."""
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
    """The inner call raises an error, or runs after the other."""
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
    """Block hashes that are not a list. One of them is something else."""

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
    """A block as a connector may wrap it. Its id is something else when it is read."""

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
    """A hit of a class that is not kvoxide's."""

    def __init__(self, blocks: Any, then: Callable[[], Any]) -> None:
        self._blocks = blocks
        self._then = then

    @property
    def blocks(self) -> Any:
        self._then()
        return self._blocks


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
