"""Reads and writes a manager's groups as code other than vLLM's scheduler does, once with vLLM's
own manager and once with kvoxide's, in a process where vLLM loaded its plugins."""

from collections.abc import Callable
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide import ConfigError  # noqa: E402
from kvoxide.vllm.adapter import native_class  # noqa: E402
from vllm.v1.core.kv_cache_utils import KVCacheBlockCopy  # noqa: E402

from tests.testing.small_world import (  # noqa: E402
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    config,
    full,
    make_manager,
    make_request,
    states,
    stock_manager,
    window,
)

ROW = 3 * BLOCK_SIZE


def native_manager(*specs: Any, **arguments: Any) -> Any:
    """Return a manager like :func:`make_manager`. Fail if vLLM's own would be constructed."""
    manager = make_manager(*specs, **arguments)
    assert type(manager) is native_class()
    return manager


MANAGERS = pytest.mark.parametrize("make", [stock_manager, native_manager], ids=["vllm", "kvoxide"])


def hybrid(make: Callable[..., Any], **arguments: Any) -> Any:
    return make(full(), states(), scheduler_block_size=ROW, **arguments)


def admit(manager: Any, request: Any, num_tokens: int) -> Any:
    blocks, num_hit = manager.get_computed_blocks(request)[:2]
    return manager.allocate_slots(request, num_tokens - num_hit, num_hit, blocks)


@MANAGERS
def test_a_block_is_one_object_while_it_is_held(make: Callable[..., Any]) -> None:
    manager = make()
    request = make_request("a", list(range(100)))
    admit(manager, request, 100)
    pool = manager.block_pool
    table = manager.coordinator.single_type_managers[0].req_to_blocks[request.request_id]
    first, second = table[0], table[1]
    assert manager.get_blocks(request.request_id).blocks[0][0] is first
    assert pool.blocks[first.block_id] is first
    assert pool.get_cached_block(request.block_hashes[0], [0])[0] is first
    assert first is not second
    assert (
        pool.free_block_queue.fake_free_list_head.next_free_block
        is pool.blocks[pool.free_block_queue.get_all_free_blocks()[0].block_id]
    )


@MANAGERS
def test_a_table_follows_its_request_and_outlives_it(make: Callable[..., Any]) -> None:
    manager = hybrid(make)
    request = make_request("a", list(range(200)))
    tables = manager.coordinator.single_type_managers[1].req_to_blocks
    assert request.request_id not in tables
    assert tables.get(request.request_id) is None
    admit(manager, request, 2 * ROW)
    table = tables[request.request_id]
    before = list(table)
    request.num_computed_tokens = 2 * ROW
    manager.new_step_starts()
    manager.allocate_slots(request, ROW)
    assert len(table) > len(before)
    assert table == manager.get_blocks(request.request_id).blocks[1]
    assert [block.block_id for block in table[1:3]] == [table[1].block_id, table[2].block_id]
    assert table[-1] is table[len(table) - 1]
    assert [block.block_id for block in table[::-2]] == [b.block_id for b in list(table)[::-2]]
    with pytest.raises(IndexError):
        table[len(table)]
    assert request.request_id in tables
    last = tables[request.request_id]
    manager.free(request)
    assert request.request_id not in tables
    assert len(tables) == 0
    assert [block.ref_cnt for block in last if not block.is_null] == [0] * sum(
        not block.is_null for block in last
    )
    assert not last[-1].is_null


@MANAGERS
@pytest.mark.parametrize(("interval", "kept"), [(None, [0, 1, 2]), (0, [2]), (2 * ROW, [1, 2])])
def test_the_retention_interval_can_be_set(
    make: Callable[..., Any], interval: int | None, kept: list[int]
) -> None:
    """``kept`` are the states of a prompt of three blocks that can be hit: at every boundary, at
    the prompt's end alone, or at multiples of the interval too."""
    manager = hybrid(make)
    manager.coordinator.retention_interval = interval
    assert manager.coordinator.retention_interval == interval
    request = make_request("a", list(range(3 * ROW + 1)))
    for end in (ROW, 2 * ROW, 3 * ROW):
        manager.new_step_starts()
        admit(manager, request, end) if end == ROW else manager.allocate_slots(request, ROW)
        request.num_computed_tokens = end
    pool = manager.block_pool
    hashes = [request.block_hashes[3 * i + 2] for i in range(3)]
    grouped = [b"".join(request.block_hashes[3 * i : 3 * i + 3]) for i in range(3)]
    found = [
        i
        for i in range(3)
        if pool.get_cached_block(hashes[i], [1]) or pool.get_cached_block(grouped[i], [1])
    ]
    assert found == kept


def test_an_interval_that_means_nothing_is_refused() -> None:
    coordinator = hybrid(native_manager).coordinator
    with pytest.raises(ConfigError, match="multiple of the scheduler block size"):
        coordinator.retention_interval = ROW + 1
    assert coordinator.retention_interval is None
    with pytest.raises(ConfigError, match="no effect"):
        native_manager(full()).coordinator.retention_interval = BLOCK_SIZE


@MANAGERS
def test_copies_that_others_put_into_a_group_are_handed_out(make: Callable[..., Any]) -> None:
    manager = make(full())
    source, target = manager.block_pool.get_new_blocks(2)
    manager.coordinator.single_type_managers[0]._pending_cow_copies.append((source, target))
    copies, blocks = manager.take_kv_cache_block_copies()
    assert copies == [KVCacheBlockCopy(src_block_id=source.block_id, dst_block_id=target.block_id)]
    assert blocks[0] is source
    assert blocks[1] is target
    assert manager.take_kv_cache_block_copies() == ([], [])


@MANAGERS
def test_fewer_tokens_than_none_cache_nothing(make: Callable[..., Any]) -> None:
    manager = hybrid(make)
    request = make_request("a", list(range(100)))
    manager.cache_blocks(request, -1)
    admit(manager, request, ROW)
    manager.cache_blocks(request, -ROW)
    assert manager.get_computed_blocks(make_request("b", list(range(100))))[1] == ROW


@MANAGERS
@pytest.mark.parametrize(("in_flight", "num_dropped"), [(0, 2), (-BLOCK_SIZE, 3)])
def test_fewer_tokens_than_none_in_flight_count_as_computed(
    make: Callable[..., Any], in_flight: int, num_dropped: int
) -> None:
    manager = make(full(), window())
    request = make_request("a", list(range(100)))
    admit(manager, request, 96)
    request.num_computed_tokens, request.num_in_flight_tokens = 96, in_flight
    manager.allocate_slots(request, 4)
    assert manager.get_block_ids("secret-a")[1].count(0) == num_dropped


@MANAGERS
def test_a_function_in_place_of_a_groups_cache_blocks_is_called(make: Callable[..., Any]) -> None:
    manager = make(full(), window())
    told: list[tuple[str, int]] = []
    for group in manager.coordinator.single_type_managers:
        cache = group.cache_blocks

        def spy(request: Any, num_tokens: int, _cache: Any = cache, **kwargs: Any) -> None:
            told.append((request.request_id, num_tokens))
            _cache(request, num_tokens, **kwargs)

        group.cache_blocks = spy
    a, b = make_request("a", list(range(100))), make_request("b", list(range(50)))
    admit(manager, a, 96)
    manager.allocate_slots(b, 40, delay_cache_blocks=True)
    assert told == [("secret-a", 96)] * 2
    a.num_computed_tokens = 96
    manager.allocate_slots(a, 4, num_lookahead_tokens=2)
    manager.cache_blocks(b, 32)
    assert told[2:] == [("secret-a", 96)] * 2 + [("secret-b", 32)] * 2
    manager.block_pool.unpin_blocks(manager.block_pool.get_new_blocks(1), lambda block: None)
    manager.allocate_slots(a, 4)
    assert len(told) == 8, "also once the pool is watched"
    request = make_request("c", list(range(100)))
    assert manager.get_computed_blocks(request)[1] == 96, "and what it stands for was done"


@MANAGERS
def test_a_state_inside_a_chunk_is_known_while_its_step_runs(make: Callable[..., Any]) -> None:
    spec = states().__class__(
        **{
            **{name: getattr(states(), name) for name in ("block_size", "shapes", "dtypes")},
            "mamba_cache_mode": "align",
            "num_prefill_checkpoint_blocks": 1,
            "prefill_checkpoint_alignment": BLOCK_SIZE,
        }
    )
    manager = make(
        full(),
        spec,
        scheduler_block_size=ROW,
        kv_cache_config=config(full(), spec),
        max_model_len=MAX_MODEL_LEN,
    )
    checkpoints = manager.coordinator.single_type_managers[1]._checkpoints
    request = make_request("a", list(range(4 * ROW - 5)))
    assert request.request_id not in checkpoints
    admit(manager, request, 4 * ROW - 5)
    assert dict(checkpoints) == {request.request_id: (4 * ROW - BLOCK_SIZE, 2)}
    manager.free(request)
    assert len(checkpoints) == 0


def test_a_state_that_was_given_a_hash_refuses_the_step_and_nothing_changes() -> None:
    manager = hybrid(native_manager)
    request = make_request("a", list(range(200)))
    blocks, num_hit = manager.get_computed_blocks(request)[:2]
    manager.allocate_slots(request, ROW, num_hit, blocks, delay_cache_blocks=True)
    request.num_computed_tokens = ROW
    state = manager.get_blocks(request.request_id).blocks[1][0]
    state.set_block_hash(b"h" * 32 + bytes([0, 0, 0, 1]), ROW)
    before = manager.engine.state_digest()
    with pytest.raises(AssertionError, match="the state at position 0 is already cached"):
        manager.allocate_slots(request, ROW)
    assert manager.engine.state_digest() == before
    state.reset_hash()
    assert manager.allocate_slots(request, ROW) is not None


@MANAGERS
def test_a_reserve_below_zero_is_room(make: Callable[..., Any]) -> None:
    """Rows of states with too many blocks are a demand below zero, which vLLM reserves."""
    manager = make(full(), kv_cache_config=config(full(), num_blocks=8))
    request = make_request("a", list(range(7 * BLOCK_SIZE)))
    assert manager.allocate_slots(request, 6 * BLOCK_SIZE, reserved_blocks=2) is None
    assert manager.allocate_slots(request, 6 * BLOCK_SIZE, reserved_blocks=-2) is not None
    other = make_request("b", list(range(4 * BLOCK_SIZE)))
    assert manager.allocate_slots(other, 4 * BLOCK_SIZE, reserved_blocks=-2) is None
    with pytest.raises(ValueError, match="free"):
        manager.allocate_slots(other, 2 * BLOCK_SIZE, reserved_blocks=-2)
