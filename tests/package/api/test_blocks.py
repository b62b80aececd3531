"""Tests of views of blocks, and of the results that hold them."""

import numpy as np
from kvoxide import KVCacheBlocks

from tests.testing.small import admit, allocate, full, make_manager, make_request, serve, window


def two_groups() -> KVCacheBlocks:
    manager = make_manager(full(4), window(4, 8))
    request = make_request(manager, "a", range(10))
    admit(manager, request)
    return manager.get_blocks("a")


def test_ids_as_lists() -> None:
    blocks = two_groups()
    assert blocks.get_block_ids() == ([1, 2, 3], [4, 5, 6])
    assert blocks.get_block_ids(group_ids=[1]) == ([4, 5, 6],)
    assert blocks.get_block_ids(group_ids=[1, 0]) == ([4, 5, 6], [1, 2, 3])
    assert len(blocks) == 2


def test_ids_as_arrays() -> None:
    blocks = two_groups()
    first, second = blocks.get_block_ids_numpy()
    assert first.dtype == second.dtype == np.int32
    assert (first.tolist(), second.tolist()) == ([1, 2, 3], [4, 5, 6])
    (only,) = blocks.get_block_ids_numpy(group_ids=[1])
    assert only.tolist() == [4, 5, 6]


def test_ids_in_any_order_are_lists_of_ints() -> None:
    """Long lists are built from runs of ids that increase or decrease, or from single ints."""
    manager = make_manager(full(4), num_blocks=6000, max_model_len=2400)
    rng = np.random.default_rng(3)
    for turn in range(40):
        running = [
            (make_request(manager, f"{turn}-{i}", range(9_000 * i, 9_000 * i + length)), length)
            for i, length in enumerate(rng.integers(4, 2400, size=8).tolist())
        ]
        for _ in range(10):
            for request, length in running:
                if left := length - 1 - request.num_computed_tokens:
                    allocate(manager, request, min(240, left))
        for request, _ in running:
            (ids,) = manager.get_block_ids(request.request_id)
            (array,) = manager.get_blocks(request.request_id).get_block_ids_numpy()
            assert ids == array.tolist()
            assert {type(block_id) for block_id in ids} == {int}
        for index in rng.permutation(8):
            manager.free(running[index][0])


def test_arrays_are_the_callers() -> None:
    blocks = two_groups()
    blocks.get_block_ids_numpy()[0][:] = 99
    assert blocks.get_block_ids() == ([1, 2, 3], [4, 5, 6])


def test_no_blocks_may_read_as_none() -> None:
    blocks = two_groups()
    assert blocks.get_block_ids(allow_none=True) == ([1, 2, 3], [4, 5, 6])
    assert blocks.new_empty().get_block_ids(allow_none=True) is None
    assert blocks.new_empty().get_block_ids() == ([], [])


def test_one_empty_group_is_not_none() -> None:
    manager = make_manager(full(4), window(8, 16))
    request = make_request(manager, "a", range(4))
    admit(manager, request)
    request.append_output_token_ids(9)
    blocks = allocate(manager, request, 1)
    assert blocks.get_block_ids(allow_none=True) == ([3], [])
    assert blocks.get_block_ids(allow_none=True, group_ids=[1]) is None


def test_null_blocks_are_in_the_ids() -> None:
    manager = make_manager(window(4, 8))
    serve(manager, "a", range(24))
    hit, num_hit, _ = manager.get_computed_blocks(make_request(manager, "b", range(25)))
    assert num_hit == 24
    assert hit.get_block_ids() == ([0, 0, 0, 0, 5, 6],)
    assert hit.get_block_ids_numpy()[0].tolist() == [0, 0, 0, 0, 5, 6]
    assert [block.is_null for block in hit.blocks[0]] == [True] * 4 + [False] * 2


def test_sum_of_blocks() -> None:
    manager = make_manager(full(4))
    first = make_request(manager, "a", range(8))
    second = make_request(manager, "b", range(50, 55))
    total = allocate(manager, first, 8) + allocate(manager, second, 5)
    assert total.get_block_ids() == ([1, 2, 3, 4],)


def test_blocks_without_a_hash() -> None:
    assert two_groups().get_unhashed_block_ids_all_groups() == [[3], [6]]
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(10))
    assert allocate(manager, request, 10).get_unhashed_block_ids() == [3]


def test_null_blocks_are_no_blocks_without_a_hash() -> None:
    manager = make_manager(window(4, 8))
    request = make_request(manager, "a", range(25))
    allocate(manager, request, 24)
    allocate(manager, request, 1)
    assert manager.get_block_ids("a") == ([0, 0, 0, 0, 5, 6, 7],)
    assert manager.get_blocks("a").get_unhashed_block_ids_all_groups() == [[7]]


def test_what_a_block_says_of_itself() -> None:
    manager = make_manager(full(4), window(4, 8))
    request = make_request(manager, "a", range(6))
    admit(manager, request)
    cached, filling = manager.get_blocks("a").blocks[1]
    assert (cached.block_id, cached.ref_cnt, cached.is_null) == (3, 1, False)
    assert cached.block_hash == request.block_hashes[0] + b"\0\0\0\1"
    assert cached.block_hash_num_tokens == 4
    assert (filling.block_hash, filling.block_hash_num_tokens) == (None, None)
    assert not cached.is_pinned


def test_views_of_one_block_are_equal_and_alive() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(4))
    view = manager.block_pool.blocks[1]
    assert view.ref_cnt == 0
    admit(manager, request)
    assert view == manager.get_blocks("a").blocks[0][0]
    assert view != manager.block_pool.blocks[2]
    assert view.ref_cnt == 1
    assert view.block_hash == request.block_hashes[0] + bytes(4)


def test_blocks_of_two_pools_differ() -> None:
    assert make_manager().block_pool.blocks[1] != make_manager().block_pool.blocks[1]


def test_a_hit_can_be_cut_at_a_block() -> None:
    manager = make_manager(full(4), window(4, 8))
    serve(manager, "a", range(16))
    hit, num_hit, _ = manager.get_computed_blocks(make_request(manager, "b", range(17)))
    assert (num_hit, hit.get_block_ids()) == (16, ([1, 2, 3, 4], [0, 0, 7, 8]))
    assert manager.truncate_computed_blocks(hit, 12).get_block_ids() == ([1, 2, 3], [0, 0, 7])
    assert manager.truncate_computed_blocks(hit, 0).get_block_ids() == ([], [])
    assert hit.get_block_ids() == ([1, 2, 3, 4], [0, 0, 7, 8])


def test_blocks_can_be_put_together_by_hand() -> None:
    manager = make_manager(full(4), window(4, 8))
    pool = manager.block_pool.blocks
    blocks = manager.create_kv_cache_blocks(([pool[3], pool[1]], [pool[2]]))
    assert blocks.get_block_ids() == ([3, 1], [2])
    assert manager.create_kv_cache_blocks(([], [])).get_block_ids(allow_none=True) is None
