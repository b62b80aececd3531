"""Tests of Python code that raises or makes calls in the middle of a call. Afterwards the manager
is unchanged, or it says that it is poisoned."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import kvoxide
import pytest
from kvoxide import PoisonedError, Request

from tests.testing.small import admit, full, make_manager, make_request, window


class World:
    """A manager in the middle of its work."""

    def __init__(self) -> None:
        self.manager: Any = make_manager(
            full(4), window(4, 8), num_blocks=61, enable_kv_cache_events=True,
            needs_kv_cache_zeroing=True,
        )  # fmt: skip
        self.pool = self.manager.block_pool
        self.running = make_request(self.manager, "running", range(30))
        admit(self.manager, self.running)
        self.other = make_request(self.manager, "other", range(100, 120))
        admit(self.manager, self.other)
        self.new = make_request(self.manager, "new", range(40))
        self.hash = self.new.block_hashes[0]
        self.taken = self.pool.get_new_blocks(3)
        self.hashed = Request("hashed", num_prompt_tokens=20, block_hashes=[b"h" * 32])


class Stop(Exception):
    """An exception of a class that the engine does not know."""


FAULTS = [Stop, KeyboardInterrupt, SystemExit, MemoryError, RuntimeError]


class Faulty(list[Any]):
    """A list that yields ``items`` and then does something else."""

    def __init__(self, items: Any, then: Callable[[], Any]) -> None:
        super().__init__(items)
        self._then = then

    def __iter__(self) -> Iterator[Any]:
        yield from list(super().__iter__())[:2]
        self._then()
        yield from list(super().__iter__())[2:]


class _Integer:
    """An int-like whose value is computed by Python code."""

    def __init__(self, value: int, then: Callable[[], Any]) -> None:
        self._value = value
        self._then = then

    def __index__(self) -> int:
        self._then()
        return self._value


Integer: Any = _Integer
Then = Callable[[], Any]
CALLS: dict[str, Callable[[World, Then], Any]] = {
    "touch": lambda w, then: w.pool.touch(Faulty(w.taken, then)),
    "free blocks": lambda w, then: w.pool.free_blocks(Faulty(w.taken, then)),
    "evict": lambda w, then: w.manager.evict_blocks(Faulty([1, 2, 3], then)),
    "evict a number": lambda w, then: w.manager.evict_blocks([1, 2, Integer(3, then)]),
    "evict of the pool": lambda w, then: w.pool.evict_blocks(Faulty([1, 2, 3], then)),
    "take blocks": lambda w, then: w.pool.get_new_blocks(Integer(3, then)),
    "find": lambda w, then: w.pool.get_cached_block(w.hash, [Integer(0, then), 1]),
    "make blocks": lambda w, then: w.manager.create_kv_cache_blocks(
        Faulty([w.taken, [], []], then)
    ),
    "slots": lambda w, then: w.manager.allocate_slots(w.new, Integer(4, then)),
    "slots that are not zeroed": lambda w, then: w.manager.allocate_slots(
        w.new, 4, skip_zeroing_group_ids=[0, Integer(1, then)]
    ),
    "cache": lambda w, then: w.manager.cache_blocks(w.running, Integer(8, then)),
    "look up": lambda w, then: w.manager.get_computed_blocks(w.new, Integer(20, then)),
    "skip": lambda w, then: w.manager.remove_skipped_blocks("running", Integer(8, then)),
    "tokens": lambda w, then: make_request(w.manager, "x", Faulty([1, 2, 3], then)),
    "tokens one by one": lambda w, then: Request("x", [1, 2, Integer(3, then)]),
    "output": lambda w, then: w.running.append_output_token_ids([1, 2, Integer(3, then)]),
    "hashes": lambda w, then: w.hashed.append_block_hashes([b"i" * 32], Integer(4, then)),
}


def tokens_and_hashes(world: World) -> Any:
    requests = (world.running, world.new, world.hashed)
    return [(r.num_tokens, list(r.all_token_ids), r.block_hashes) for r in requests]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
def test_an_exception_is_passed_on_and_changes_nothing(
    call: str, fault: type[BaseException]
) -> None:
    def fail() -> None:
        raise fault("planted")

    world = World()
    before, requests = world.manager.state_digest(), tokens_and_hashes(world)
    with pytest.raises(fault, match="planted"):
        CALLS[call](world, fail)
    assert world.manager.state_digest() == before
    assert tokens_and_hashes(world) == requests
    world.manager.check_invariants()


@pytest.mark.parametrize("call", CALLS)
def test_a_call_from_within_is_an_error_or_comes_first(call: str) -> None:
    world = World()
    came: list[bool] = []

    def call_again() -> None:
        if not came:
            came.append(True)
            world.manager.free(world.other)

    with suppress(RuntimeError, kvoxide.RequestError):  # BusyError is a RuntimeError
        CALLS[call](world, call_again)
    assert came
    world.manager.check_invariants()
    with pytest.raises(kvoxide.UnknownRequestError):
        world.manager.free(world.other)


@pytest.mark.parametrize(
    ("hashes", "error"),
    [
        ([b"i" * 32, "text"], kvoxide.RequestError),
        ([b"i" * 32, None], kvoxide.RequestError),
        ([b"i" * 32, b"short"], kvoxide.BlockHashError),
        ([b"short"], kvoxide.BlockHashError),
        ([b""], kvoxide.BlockHashError),
        ([b"i" * 33], kvoxide.BlockHashError),
        (7, kvoxide.RequestError),
    ],
)
def test_wrong_hashes_change_nothing(hashes: Any, error: type[Exception]) -> None:
    world = World()
    before = tokens_and_hashes(world)
    with pytest.raises(error):
        world.hashed.append_block_hashes(hashes, 4)
    assert tokens_and_hashes(world) == before


def test_hashes_of_a_refused_request_are_not_the_managers_kind() -> None:
    manager = make_manager(full(4))
    strange = Request("strange", num_prompt_tokens=8, block_hashes=[b"short", b"other"])
    with pytest.raises(kvoxide.RequestError):
        manager.allocate_slots(strange, 0)
    admit(manager, make_request(manager, "a", range(30)))


# The calls use no arrays, because numpy itself crashes if it runs out of memory while it creates
# one.
MEMORY_CALLS: dict[str, Callable[[World], Any]] = {
    "hashes": lambda w: w.new.block_hashes,
    "ids": lambda w: w.manager.get_block_ids("running"),
    "blocks": lambda w: w.manager.get_blocks("running").blocks,
    "zeroing": lambda w: w.manager.take_new_block_ids(),
    "events": lambda w: w.manager.take_events(),
    "pop": lambda w: w.manager.pop_blocks_for_free(w.running),
    "slots": lambda w: w.manager.allocate_slots(w.new, 8),
    "look up": lambda w: w.manager.get_computed_blocks(w.new),
    "take": lambda w: w.pool.get_new_blocks(5),
    "cached": lambda w: w.pool.get_cached_block(w.hash, [0]),
    "reset": lambda w: w.manager.reset_prefix_cache(),
}


@pytest.mark.parametrize("call", MEMORY_CALLS)
def test_running_out_of_memory_is_an_exception(call: str) -> None:
    """Each of the first allocations of the call fails in turn."""
    testcapi = pytest.importorskip("_testcapi", reason="a Python built without its test modules")
    for nth in range(40):
        world = World()
        before = world.manager.state_digest()
        error: BaseException | None = None
        testcapi.set_nomemory(nth, nth + 1)
        try:
            MEMORY_CALLS[call](world)
        except BaseException as raised:
            error = raised
        finally:
            testcapi.remove_mem_hooks()
        if error is not None:
            assert isinstance(error, MemoryError | kvoxide.InternalError), repr(error)
            assert is_poisoned(world) or world.manager.state_digest() == before


def is_poisoned(world: World) -> bool:
    try:
        world.manager.check_invariants()
    except PoisonedError:
        return True
    return False
