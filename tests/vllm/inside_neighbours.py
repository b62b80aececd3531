"""Runs connectors and scheduler classes of others on a manager's queue, views and tables, once with
vLLM's own manager and once with kvoxide's. Also tests what only kvoxide's refuses."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.vllm.inside_pokes import MANAGERS, admit, native_manager

from tests.testing.small_world import BLOCK_SIZE, config, full, make_request  # isort: skip
from vllm.v1.core.kv_cache_utils import KVCacheBlock  # isort: skip

TOKENS = 13 * BLOCK_SIZE - 8


def running(make: Callable[..., Any], num_blocks: int = 100) -> tuple[Any, Any]:
    """Return a manager with a request of 13 blocks, whose last block is not full."""
    manager = make(full(), kv_cache_config=config(full(), num_blocks=num_blocks))
    request = make_request("a", list(range(TOKENS)))
    admit(manager, request, TOKENS)
    request.num_computed_tokens = TOKENS
    return manager, request


def ids(blocks: Any) -> list[int]:
    return [block.block_id for block in blocks]


@MANAGERS
def test_the_queue_is_walked_from_one_sentinel_to_the_other(make: Callable[..., Any]) -> None:
    manager, _ = running(make)
    pool = manager.block_pool
    queue = pool.free_block_queue
    head, tail = queue.fake_free_list_head, queue.fake_free_list_tail
    forward, block = [], head.next_free_block
    while block is not tail:
        forward.append(block)
        block = block.next_free_block
    backward, block = [], tail.prev_free_block
    while block is not head:
        backward.append(block)
        block = block.prev_free_block
    assert forward == backward[::-1] == queue.get_all_free_blocks()
    assert ids(forward) == list(range(14, 100))
    assert (tail.next_free_block, head.prev_free_block) == (None, None)
    for outside in (pool.blocks[0], pool.blocks[1]):
        assert (outside.next_free_block, outside.prev_free_block) == (None, None)
    pool.get_new_blocks(86)
    assert head.next_free_block is tail
    assert tail.prev_free_block is head


@MANAGERS
def test_the_queue_may_change_while_it_is_listed(make: Callable[..., Any]) -> None:
    manager, _ = running(make)
    pool = manager.block_pool
    walk = pool.free_block_queue.iter_blocks_after(None)
    seen = [next(walk).block_id, next(walk).block_id]
    taken = pool.get_new_blocks(1)
    seen.append(next(walk).block_id)
    pool.free_blocks(taken)
    seen += ids([next(walk), next(walk)])
    pool.get_new_blocks(6)
    assert seen == [14, 15, 16, 17, 18]
    assert list(walk) == []
    assert list(walk) == []
    cursor = pool.blocks[95]
    assert ids(pool.free_block_queue.iter_blocks_after(cursor)) == [96, 97, 98, 99]


@MANAGERS
@pytest.mark.parametrize("num_blocks", [100, 3_000])
def test_a_block_is_one_object_of_vllms_class(make: Callable[..., Any], num_blocks: int) -> None:
    manager = make(
        full(),
        kv_cache_config=config(full(), num_blocks=num_blocks),
        max_model_len=num_blocks * BLOCK_SIZE,
    )
    num_tokens = (num_blocks - 10) * BLOCK_SIZE
    request = make_request("a", list(range(num_tokens)))
    admit(manager, request, num_tokens)
    pool = manager.block_pool
    row = manager.coordinator.single_type_managers[0].req_to_blocks[request.request_id]
    looked_at = [pool.blocks[block_id] for block_id in range(0, num_blocks, 7)]
    everyone = list(pool.blocks)
    assert all(everyone[block.block_id] is block for block in looked_at)
    assert all(block is everyone[block.block_id] for block in row)
    assert all(a is b for a, b in zip(row, manager.get_blocks("secret-a").blocks[0], strict=True))
    assert all(isinstance(block, KVCacheBlock) for block in (*row, everyone[0]))
    assert pool.blocks[num_blocks - 1] is everyone[-1] is pool.blocks[-1]
    assert pool.blocks[3:9:2] == everyone[3:9:2]
    assert len(pool.blocks) == num_blocks
    with pytest.raises(IndexError):
        pool.blocks[num_blocks]
    ends = pool.free_block_queue
    assert isinstance(ends.fake_free_list_tail, KVCacheBlock)
    assert ends.fake_free_list_head.block_id == -1


def test_views_end_with_their_pool() -> None:
    manager, request = running(native_manager)
    pool, engine = weakref.ref(manager.block_pool), weakref.ref(manager.coordinator)
    row = manager.coordinator.single_type_managers[0].req_to_blocks[request.request_id]
    held = [*manager.block_pool.blocks, *row]
    blocks = manager.get_blocks(request.request_id)
    del manager
    gc.collect()
    assert pool() is None
    assert engine() is None
    assert ids(held[-13:]) == list(range(1, 14))
    assert ids(blocks.blocks[0]) == list(range(1, 14))


@MANAGERS
def test_a_table_that_a_scheduler_cuts_is_filled_again(make: Callable[..., Any]) -> None:
    manager, request = running(make)
    group, pool = manager.coordinator.single_type_managers[0], manager.block_pool
    row = group.req_to_blocks[request.request_id]
    tail = row[3:]
    del group.req_to_blocks[request.request_id][3:]
    group.num_cached_block[request.request_id] = 3
    pool.free_blocks(reversed(tail))
    assert ids(row) == manager.get_block_ids(request.request_id)[0] == [1, 2, 3]
    assert pool.get_num_free_blocks() == 96
    request.num_computed_tokens = 3 * BLOCK_SIZE
    manager.allocate_slots(request, 2 * BLOCK_SIZE)
    assert ids(row) == [1, 2, 3, 13, 14]
    assert group.num_cached_block[request.request_id] == 5
    manager.free(request)
    assert (ids(row), pool.get_num_free_blocks()) == ([1, 2, 3, 13, 14], 99)
    assert request.request_id not in group.req_to_blocks
    assert request.request_id not in group.num_cached_block


@MANAGERS
def test_every_way_to_write_to_a_table_is_the_lists(make: Callable[..., Any]) -> None:
    manager, request = running(make)
    group, pool = manager.coordinator.single_type_managers[0], manager.block_pool
    row = group.req_to_blocks[request.request_id]
    new = pool.get_new_blocks(4)
    row.append(new[0])
    row.extend(new[1:3])
    row.insert(13, new[3])
    assert ids(row[12:]) == [13, 17, 14, 15, 16]
    assert row.pop() is new[2]
    assert row.pop(13) is new[3]
    row.remove(new[1])
    row += [new[1]]
    row[13:] = new[::-1]
    assert ids(row[12:]) == [13, 17, 16, 15, 14]
    row[13:] = new
    assert manager.get_block_ids(request.request_id)[0] == ids(row)
    popped = group.req_to_blocks.pop(request.request_id)
    assert ids(popped) == list(range(1, 18))
    assert group.num_cached_block.pop(request.request_id) == 12
    assert group.req_to_blocks.get(request.request_id) is None
    pool.free_blocks(reversed(popped))
    assert manager.get_block_ids(request.request_id) == ([],)
    assert manager.usage == 0.0
    with pytest.raises(KeyError):
        group.req_to_blocks.pop(request.request_id)


@MANAGERS
def test_a_table_of_a_request_that_nobody_knows_can_be_written(make: Callable[..., Any]) -> None:
    manager, _ = running(make)
    group, pool = manager.coordinator.single_type_managers[0], manager.block_pool
    group.req_to_blocks["new"].extend(pool.get_new_blocks(2))
    group.req_to_blocks["newer"] = pool.get_new_blocks(1)
    assert manager.get_block_ids("new") == ([14, 15],)
    assert ids(group.req_to_blocks["newer"]) == [16]
    assert sorted(group.req_to_blocks) == ["new", "newer", "secret-a"]
    pool.free_blocks(group.req_to_blocks.pop("newer"))
    assert len(group.req_to_blocks) == 2


@MANAGERS
def test_blocks_are_taken_and_given_back_by_hand(make: Callable[..., Any]) -> None:
    manager, _ = running(make)
    pool = manager.block_pool
    queue = pool.free_block_queue
    blocks = [queue.popleft(), *queue.popleft_n(2)]
    for block in blocks:
        assert block.ref_cnt == 0
        pool._maybe_evict_cached_block(block)
        block.ref_cnt += 1
    assert pool.get_num_free_blocks() == 83
    blocks[0].ref_cnt -= 1
    queue.append(blocks[0])
    for block in blocks[1:]:
        block.ref_cnt = 0
    queue.prepend_n(blocks[1:])
    queue.remove(pool.blocks[50])
    queue.append_n([pool.blocks[50]])
    assert ids(queue.get_all_free_blocks()[:2]) == [15, 16]
    assert ids(queue.get_all_free_blocks()[-2:]) == [14, 50]
    with pytest.raises(RuntimeError, match="remove"):
        queue.remove(pool.blocks[1])
    with pytest.raises(AssertionError):
        queue.popleft_n(87)
    assert queue.popleft_n(0) == []
    queue.popleft_n(86)
    with pytest.raises(ValueError, match="No free blocks"):
        queue.popleft()


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda pool, row: pool.free_block_queue.append(pool.blocks[0]), "null block.*ariant 2"),
        (lambda pool, row: pool.free_block_queue.append(pool.blocks[50]), "already.*ariant 2"),
        (lambda pool, row: pool.free_block_queue.append(row[0]), r"1 references.*ariant 2|6\)"),
        (lambda pool, row: row.append(row[0]), "1 references for 2 places.*invariant 6"),
        (lambda pool, row: row.append(pool.blocks[50]), "no reference.*invariant 6"),
        (
            lambda pool, row: row.__setitem__(0, pool.blocks[14]),
            "for 2 places.*invariant 6",
        ),
        (lambda pool, row: row.append(object()), "block_id"),
    ],
)
def test_what_would_break_a_table_is_refused(write: Callable[[Any, Any], Any], why: str) -> None:
    manager, request = running(native_manager)
    other = make_request("b", list(range(900, 950)))
    admit(manager, other, 50)
    row = manager.coordinator.single_type_managers[0].req_to_blocks[request.request_id]
    before = (ids(row), manager.engine.state_digest())
    with pytest.raises((ValueError, AttributeError), match=why):
        write(manager.block_pool, row)
    assert (ids(row), manager.engine.state_digest()) == before


def test_a_table_that_was_left_broken_stops_its_request_alone() -> None:
    manager, request = running(native_manager)
    manager.coordinator.single_type_managers[0].num_cached_block[request.request_id] = 3
    with pytest.raises(AssertionError, match="writes to block 4, which is shared or cached"):
        manager.allocate_slots(request, BLOCK_SIZE)
    manager.coordinator.single_type_managers[0].num_cached_block[request.request_id] = 12
    assert manager.allocate_slots(request, BLOCK_SIZE) is not None


def test_further_keys_are_kept_for_who_holds_on_to_them() -> None:
    manager, _ = running(native_manager)
    pool = manager.block_pool
    kept = pool.cached_block_hashes_by_block
    assert kept == {}
    key = b"k" * 32 + bytes(4)
    pool._insert_block_hash(key, pool.blocks[1], 16)
    assert kept == {1: {key}}
    assert kept.get(2) is None
    with pytest.raises(TypeError, match="cannot be set here"):
        kept[1] = set()
    pool.evict_blocks({1})
    assert kept == {}
