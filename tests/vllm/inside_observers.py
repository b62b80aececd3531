"""Tests of observers, other threads and other processes that act in the middle of a call.
Afterwards kvoxide's manager is unchanged, or it says that it is poisoned."""

import os
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from kvoxide import BusyError, PoisonedError

from tests.testing.small_world import make_manager, make_request
from tests.vllm.faulty_world import (
    FAULTS,
    OF_REQUESTS,
    TOKENS,
    Collector,
    Faulty,
    World,
    cached_block,
)

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
    said = f"an observer of the block pool raised {fault.__name__}: planted"
    with pytest.raises(PoisonedError, match=said):
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
    deadline = time.monotonic() + 30  # for threads that never meet

    def switch() -> None:
        """Let another thread run while this one is inside a call."""
        time.sleep(1e-5)

    def retried(call: Callable[..., Any], *args: Any) -> Any:
        while True:
            try:
                return call(*args)
            except BusyError:
                refused[0] += 1

    def work(thread: int) -> None:
        try:
            for number in count():
                if number >= 60 and (refused[0] or time.monotonic() > deadline):
                    return
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
