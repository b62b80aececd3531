"""Tests of the pool of a manager, for code that holds blocks of its own."""

import numpy as np

from tests.testing.small import (
    admit,
    free_ids,
    full,
    make_manager,
    make_request,
    num_hit_tokens,
    serve,
    window,
)


def test_blocks_are_taken_from_the_front() -> None:
    pool = make_manager(num_blocks=6).block_pool
    taken = pool.get_new_blocks(2)
    assert [block.block_id for block in taken] == [1, 2]
    assert [block.ref_cnt for block in taken] == [1, 1]
    assert pool.get_num_free_blocks() == 3
    assert pool.get_new_blocks(0) == []


def test_freed_blocks_are_recycled_in_the_order_given() -> None:
    manager = make_manager(num_blocks=6)
    first, second = manager.block_pool.get_new_blocks(2)
    manager.block_pool.free_blocks([second, first])
    assert free_ids(manager) == [2, 1, 3, 4, 5]


def test_touched_blocks_leave_the_free_queue() -> None:
    manager = make_manager(num_blocks=6)
    blocks = manager.block_pool.blocks
    manager.block_pool.touch([blocks[4], blocks[2]])
    assert free_ids(manager) == [1, 3, 5]
    manager.block_pool.touch([blocks[4]])
    assert blocks[4].ref_cnt == 2
    manager.block_pool.free_blocks([blocks[4]])
    assert free_ids(manager) == [1, 3, 5]
    manager.block_pool.free_blocks([blocks[4]])
    assert free_ids(manager) == [4, 1, 3, 5]


def test_the_null_block_is_never_counted() -> None:
    manager = make_manager(num_blocks=6)
    pool = manager.block_pool
    pool.touch([pool.null_block])
    pool.free_blocks([pool.null_block, pool.null_block])
    assert free_ids(manager) == [1, 2, 3, 4, 5]
    manager.check_invariants()


def test_cached_blocks_are_found_by_hash_and_group() -> None:
    manager = make_manager(full(4), window(4, 8))
    request = serve(manager, "a", range(8))
    pool = manager.block_pool
    for groups, expected in [([0], [2]), ([1], [4]), ([0, 1], [2, 4])]:
        found = pool.get_cached_block(request.block_hashes[1], groups)
        assert found is not None
        assert [block.block_id for block in found] == expected
    assert pool.get_cached_block(bytes(32), [0]) is None
    pool.evict_blocks([4])
    assert pool.get_cached_block(request.block_hashes[1], [0, 1]) is None


def test_eviction_by_id_leaves_the_block_where_it_is() -> None:
    manager = make_manager(full(4), num_blocks=6)
    request = make_request(manager, "a", range(8))
    admit(manager, request)
    manager.block_pool.evict_blocks([1])
    assert manager.get_block_ids("a") == ([1, 2],)
    assert num_hit_tokens(manager, range(9)) == 0
    manager.free(request)
    assert free_ids(manager) == [1, 3, 4, 5, 2]


def test_counts() -> None:
    manager = make_manager(full(4), num_blocks=11)
    admit(manager, make_request(manager, "a", range(10)))
    pool = manager.block_pool
    assert pool.num_gpu_blocks == 11
    assert pool.get_num_cached_blocks() == 2
    assert pool.get_num_free_blocks() == 7
    assert np.isclose(pool.get_usage(), 0.3)


def test_blocks_are_a_sequence() -> None:
    blocks = make_manager(num_blocks=6).block_pool.blocks
    assert len(blocks) == 6
    assert [block.block_id for block in blocks] == [0, 1, 2, 3, 4, 5]
    assert blocks[-1].block_id == 5


def test_queues_read_as_arrays() -> None:
    pool = make_manager(num_blocks=6).block_pool
    assert pool.get_free_block_ids().dtype == np.int32
    assert pool.get_pinned_block_ids().dtype == np.int32


def test_the_pool_resets_too() -> None:
    manager = make_manager(full(4), enable_kv_cache_events=True)
    serve(manager, "a", range(8))
    assert len(manager.block_pool.take_events()) == 1
    assert manager.block_pool.reset_prefix_cache()
    assert manager.block_pool.get_num_cached_blocks() == 0
