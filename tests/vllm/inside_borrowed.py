"""A scheduler registers requests whose tables share the prefix of a parked request, once on vLLM's
own manager and once on kvoxide's, in a process where vLLM loaded its plugins."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.vllm.adapter import native_class  # noqa: E402
from kvoxide.vllm.environment import Settings, UnsupportedError, settings  # noqa: E402

from tests.testing.small_world import (  # noqa: E402
    BLOCK_SIZE,
    config,
    full,
    make_manager,
    make_request,
    states,
    stock_manager,
    traffic,
    window,
)

ROW = 3 * BLOCK_SIZE
MODELS: dict[str, dict[str, Any]] = {
    "full and window": {"kv_cache_config": config(full(), window())},
    "full and states": {
        "kv_cache_config": config(full(), states(), num_blocks=200),
        "scheduler_block_size": ROW,
        "enable_kv_cache_events": True,
    },
}


def is_native(manager: Any) -> bool:
    return isinstance(manager, native_class())


def both(model: str) -> Iterator[Any]:
    yield stock_manager(**MODELS[model])
    manager = make_manager(**MODELS[model])
    assert is_native(manager)
    yield manager


class BorrowingScheduler:
    """Does what a benchmarking scheduler does before it measures a step: registers requests whose
    tables share the prefix of a parked request and own a tail.

    A table of states shares nothing: each position of its tail is a copy of the parked request's
    newest state, which the table has several times while it is written.
    """

    def __init__(self, manager: Any, has_live_state: bool = False) -> None:
        self.manager = manager
        self.has_live_state = has_live_state

    def borrow(
        self, owner: str, name: str, num_tokens: int, room: int, copies: bool = True
    ) -> list[list[int]]:
        pool, staged = self.manager.block_pool, []
        for group in self.manager.coordinator.single_type_managers:
            size = group.block_size
            num_shared, num_all = num_tokens // size, -(-(num_tokens + 1 + room) // size)
            held = list(group.req_to_blocks[owner])
            is_state = self.has_live_state and "Mamba" in type(group.kv_cache_spec).__name__
            if is_state:
                num_shared = max(0, -(-num_tokens // size) - 1)
            tail = held[num_shared:num_all]
            if is_state:
                tail = [held[-1]] * (num_all - num_shared)
            fresh = pool.get_new_blocks(len(tail))
            staged.append((group, num_shared, held[:num_shared], tail, fresh))
        tables = []
        for group, num_shared, shared, tail, fresh in staged:
            pool.touch([*shared, *tail])
            group.req_to_blocks[name] = shared + tail
            for offset, (source, target) in enumerate(zip(tail, fresh, strict=True)):
                if copies:
                    group._apply_cow(name, num_shared + offset, source, target)
            if isinstance(group.num_cached_block, dict):
                group.num_cached_block[name] = num_shared
            tables.append([block.block_id for block in group.req_to_blocks[name]])
        return tables

    def take_copies(self) -> list[Any]:
        copies, kept = self.manager.take_kv_cache_block_copies()
        self.manager.block_pool.free_blocks(kept)
        return [tuple(copy) for copy in copies]


def parked(manager: Any, num_tokens: int, most: int = ROW) -> Any:
    """A request that computed so many tokens, at most ``most`` a step."""
    owner = make_request("owner", list(range(num_tokens)))
    while owner.num_computed_tokens < num_tokens:
        step = min(most, num_tokens - owner.num_computed_tokens)
        manager.new_step_starts()
        assert manager.allocate_slots(owner, step) is not None
        owner.num_computed_tokens += step
    return owner


@pytest.mark.parametrize(
    ("model", "has_live_state"), [("full and window", False), ("full and states", True)]
)
def test_a_benchmark_that_borrows_tables_runs_as_in_vllm(model: str, has_live_state: bool) -> None:
    """With every invariant checked after each call: one request's table is half written while
    calls about other requests run."""
    seen = []
    with settings.using(Settings(check_every=1)):
        managers = list(both(model))
    for manager in managers:
        outcome: list[Any] = []
        owner = parked(manager, 400, ROW if has_live_state else 400)
        other = make_request("other", list(range(1000, 1100)))
        scheduler = BorrowingScheduler(manager, has_live_state)
        for number, num_tokens in enumerate((100, 160, 250, 2 * ROW)):
            name = f"secret-borrowed{number}"
            outcome.append(scheduler.borrow("secret-owner", name, num_tokens, 70))
            outcome.append(scheduler.take_copies())
            borrowed = make_request(f"borrowed{number}", list(range(num_tokens + 1)))
            borrowed.num_computed_tokens = num_tokens
            for _ in range(3):
                new = manager.allocate_slots(borrowed, 1, delay_cache_blocks=True)
                outcome.append(new and new.get_block_ids())
                borrowed.append_output_token_ids(7)
                borrowed.num_computed_tokens += 1
            manager.new_step_starts()
            manager.allocate_slots(other, 10)
            other.num_computed_tokens += 10
        for number in range(4):
            manager.free(make_request(f"borrowed{number}", [1]))
        manager.free(owner)
        outcome += [manager.get_block_ids("secret-other"), manager.block_pool.get_num_free_blocks()]
        outcome.append([block.ref_cnt for block in manager.block_pool.blocks[1:]])
        outcome.append(traffic(manager, 30))
        seen.append(outcome)
    assert is_native(managers[1])
    assert str(seen[0]) == str(seen[1])


def test_a_half_written_table_fails_no_call_about_another_request() -> None:
    with settings.using(Settings(check_every=1)):
        manager = make_manager(full())
    a, b = (make_request(name, [ord(name) + i for i in range(100)]) for name in "ab")
    manager.allocate_slots(a, 64)
    manager.coordinator.single_type_managers[0].num_cached_block["secret-a"] = 1
    assert manager.allocate_slots(b, 64) is not None
    assert manager.block_pool.get_new_blocks(1)
    a.num_computed_tokens = 64
    with pytest.raises(AssertionError, match="writes to block"):
        manager.allocate_slots(a, 16)
    manager.coordinator.single_type_managers[0].num_cached_block["secret-a"] = 4
    assert manager.allocate_slots(a, 16) is not None


def with_repeats(manager: Any) -> tuple[Any, Any]:
    """The manager's parked request, and one whose table of states has a block several times."""
    owner = parked(manager, 400)
    BorrowingScheduler(manager, has_live_state=True).borrow(
        "secret-owner", "secret-borrowed", 100, 70, copies=False
    )
    borrowed = make_request("borrowed", list(range(101)))
    borrowed.num_computed_tokens = 100
    return owner, borrowed


def pop_and_free(manager: Any, request: Any) -> list[int]:
    popped = manager.pop_blocks_for_free(request)
    manager.block_pool.free_blocks(reversed(popped))
    return [block.block_id for block in popped]


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "allocate_slots": lambda m, r: (
        (new := m.allocate_slots(r, 1, delay_cache_blocks=True)) and new.get_block_ids()
    ),
    "get_computed_blocks": lambda m, r: m.get_computed_blocks(r)[1:],
    "cache_blocks": lambda m, r: m.cache_blocks(r, 100),
}
ENDS: dict[str, Callable[[Any, Any], Any]] = {
    "free": lambda m, r: m.free(r),
    "pop_blocks_for_free": pop_and_free,
    "get_block_ids": lambda m, r: m.get_block_ids(r.request_id),
    "remove_skipped_blocks": lambda m, r: m.remove_skipped_blocks(r.request_id, 100, 100),
}


def held(manager: Any) -> Any:
    """Everything that the blocks and the queue show."""
    pool = manager.block_pool
    queue = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    return queue, [(block.ref_cnt, block.block_hash) for block in pool.blocks[1:]]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_a_request_with_repeated_blocks_is_vllms(
    step: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    for manager in both("full and states"):
        owner, borrowed = with_repeats(manager)
        other = make_request("other", list(range(1000, 1100)))
        assert manager.allocate_slots(other, 100) is not None
        assert (
            manager.get_block_ids("secret-borrowed")[1][2:]
            == [manager.get_block_ids("secret-owner")[1][-1]] * 2
        )
        assert not seen or is_native(manager), "as long as only other requests take steps"
        with caplog.at_level(logging.WARNING, "vllm.kvoxide"):
            outcome = [STEPS[step](manager, borrowed), held(manager)]
        for request in (borrowed, other, owner):
            manager.free(request)
        seen.append([*outcome, held(manager), traffic(manager, 30)])
    assert not is_native(manager)
    assert str(seen[0]) == str(seen[1])
    records = (record for record in caplog.records if record.name == "vllm.kvoxide")
    messages = [record.getMessage() for record in records]
    assert len(messages) == 1
    assert f"{step}() is called for 'secret-borrowed', which has a block twice" in messages[0]
    assert "KVOXIDE=off" in messages[0]


@pytest.mark.parametrize("end", ENDS)
def test_a_request_with_repeated_blocks_ends_as_in_vllm(end: str) -> None:
    seen: list[Any] = []
    for manager in both("full and states"):
        _, borrowed = with_repeats(manager)
        seen.append([ENDS[end](manager, borrowed), held(manager)])
        manager.free(borrowed)
        seen[-1] += [held(manager), traffic(manager, 30), held(manager)]
    assert is_native(manager)
    assert vars(manager)["allocate_slots"] == manager._bound["allocate_slots"]
    assert str(seen[0]) == str(seen[1])


def test_the_engine_is_called_directly_again_once_no_block_is_repeated() -> None:
    manager = make_manager(**MODELS["full and states"])
    before = manager.allocate_slots
    _, borrowed = with_repeats(manager)
    assert manager.allocate_slots is not before
    manager.free(borrowed)
    manager.allocate_slots(make_request("other", list(range(1000, 1100))), 100)
    if not manager._has_observers:
        assert manager.allocate_slots == before
    assert not manager.coordinator.repeated_blocks


def test_require_refuses_a_step_with_repeated_blocks_and_nothing_changes() -> None:
    with settings.using(Settings(mode="require")):
        manager = make_manager(**MODELS["full and states"])
        owner, borrowed = with_repeats(manager)
        before = manager.engine.state_digest()
        with pytest.raises(UnsupportedError, match=r"has a block twice in a table.*KVOXIDE=off"):
            manager.allocate_slots(borrowed, 1)
        assert manager.engine.state_digest() == before
        manager.free(borrowed)
        manager.free(owner)
        assert traffic(manager, 20)


def test_a_hook_that_calls_the_engine_has_vllms_manager_from_the_write_on() -> None:
    seen = []
    for manager in both("full and states"):
        real = manager.allocate_slots
        manager.allocate_slots = lambda *args, real=real, **kwargs: real(*args, **kwargs)
        _, borrowed = with_repeats(manager)
        seen.append([STEPS["allocate_slots"](manager, borrowed), held(manager)])
    assert not is_native(manager)
    assert str(seen[0]) == str(seen[1])
