"""Tests with one request after the other, blocks of 4 tokens, and ids worked out by hand."""

import pytest
from kvoxide import Policy

from tests.testing.small import (
    admit,
    allocate,
    cached_positions,
    decode,
    free_ids,
    full,
    make_manager,
    make_request,
    num_hit_tokens,
    serve,
    window,
)


def test_a_request_from_look_up_to_free() -> None:
    manager = make_manager(full(4), num_blocks=11)
    request = make_request(manager, "a", range(10))

    hit, num_hit, boundary = manager.get_computed_blocks(request)
    assert (hit.get_block_ids(), num_hit, boundary) == (([],), 0, 0)

    new = allocate(manager, request, 10, new_computed_blocks=hit)
    assert new.get_block_ids() == ([1, 2, 3],)
    assert cached_positions(manager, request) == [0, 1]
    assert manager.usage == pytest.approx(0.3)

    for token, new_ids in [(100, []), (101, []), (102, [4])]:
        request.append_output_token_ids(token)
        assert allocate(manager, request, 1).get_block_ids() == (new_ids,)
    assert manager.get_block_ids("a") == ([1, 2, 3, 4],)
    assert cached_positions(manager, request) == [0, 1, 2]

    manager.free(request)
    assert free_ids(manager) == [4, 5, 6, 7, 8, 9, 10, 3, 2, 1]
    assert manager.usage == 0.0
    manager.check_invariants()


def test_a_later_request_shares_the_prefix() -> None:
    manager = make_manager(full(4), num_blocks=11)
    serve(manager, "a", range(12))
    request = make_request(manager, "b", [*range(12), 99])

    hit, num_hit, _ = manager.get_computed_blocks(request)
    assert (hit.get_block_ids(), num_hit) == (([1, 2, 3],), 12)

    new = allocate(manager, request, 1, num_new_computed_tokens=12, new_computed_blocks=hit)
    assert new.get_block_ids() == ([4],)
    assert manager.get_block_ids("b") == ([1, 2, 3, 4],)


def test_a_block_in_use_is_shared_and_outlives_its_first_owner() -> None:
    manager = make_manager(full(4), num_blocks=11)
    first = make_request(manager, "a", range(9))
    second = make_request(manager, "b", range(10))
    assert (admit(manager, first), admit(manager, second)) == (0, 8)
    assert manager.get_block_ids("b") == ([1, 2, 4],)
    assert [block.ref_cnt for block in manager.get_blocks("b").blocks[0]] == [2, 2, 1]

    manager.free(first)
    assert [block.ref_cnt for block in manager.get_blocks("b").blocks[0]] == [1, 1, 1]
    assert free_ids(manager) == [3, 5, 6, 7, 8, 9, 10]


def test_the_last_token_is_always_recomputed() -> None:
    manager = make_manager(full(4))
    serve(manager, "a", range(12))
    assert num_hit_tokens(manager, range(12)) == 8
    assert num_hit_tokens(manager, range(13)) == 12


def test_the_length_of_a_hit_can_be_bounded() -> None:
    manager = make_manager(full(4))
    serve(manager, "a", range(12))
    request = make_request(manager, "b", range(20))
    assert manager.get_computed_blocks(request, 7)[1] == 4
    assert manager.get_computed_blocks(request, 12)[1] == 12


def test_chunked_prefill_caches_each_block_as_it_fills() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(10))
    cached = []
    for chunk in (3, 3, 4):
        allocate(manager, request, chunk)
        cached.append(cached_positions(manager, request))
    assert cached == [[], [0], [0, 1]]


def test_a_preempted_request_finds_its_own_blocks() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(10))
    admit(manager, request)
    decode(manager, request, [100, 101, 102])
    manager.free(request)

    request.num_computed_tokens = 0
    request.num_preemptions += 1
    assert admit(manager, request) == 12
    assert manager.get_block_ids("a") == ([1, 2, 3, 4],)


def test_a_request_may_be_told_to_leave_the_cache_unread() -> None:
    manager = make_manager(full(4))
    serve(manager, "a", range(12))
    request = make_request(manager, "b", range(12), skip_reading_prefix_cache=True)
    assert not manager.prefix_cache_lookup_enabled(request)
    assert manager.get_computed_blocks(request)[1] == 0


def test_without_caching_nothing_is_kept() -> None:
    manager = make_manager(full(4), num_blocks=11, enable_caching=False)
    serve(manager, "a", range(12))
    assert num_hit_tokens(manager, range(13)) == 0
    assert manager.block_pool.get_num_cached_blocks() == 0
    assert free_ids(manager) == [3, 2, 1, 4, 5, 6, 7, 8, 9, 10]


def test_groups_take_their_blocks_from_one_pool() -> None:
    manager = make_manager(full(4), window(4, 8))
    request = make_request(manager, "a", range(9))
    admit(manager, request)
    assert manager.get_block_ids("a") == ([1, 2, 3], [4, 5, 6])


def test_extra_tokens_can_be_retained_below_the_window() -> None:
    manager = make_manager(window(4, 8, extra_retained_tokens=4))
    request = make_request(manager, "a", range(32))
    allocate(manager, request, 24)
    allocate(manager, request, 8)
    assert manager.get_block_ids("a") == ([0, 0, 0, 4, 5, 6, 7, 8],)


def test_skipped_blocks_can_be_removed_between_steps() -> None:
    manager = make_manager(window(4, 8))
    request = make_request(manager, "a", range(32))
    admit(manager, request)
    manager.remove_skipped_blocks("a", 24)
    assert manager.get_block_ids("a") == ([0, 0, 0, 0, 5, 6, 7, 8],)


def test_popped_blocks_are_the_callers_to_free() -> None:
    manager = make_manager(full(4), num_blocks=11)
    request = make_request(manager, "a", range(10))
    admit(manager, request)

    blocks = manager.pop_blocks_for_free(request)
    assert [block.block_id for block in blocks] == [1, 2, 3]
    assert [block.ref_cnt for block in blocks] == [1, 1, 1]
    assert manager.block_pool.get_num_free_blocks() == 7

    manager.block_pool.free_blocks(reversed(blocks))
    assert free_ids(manager) == [3, 4, 5, 6, 7, 8, 9, 10, 2, 1]


def test_what_a_request_holds_can_be_asked() -> None:
    manager = make_manager(full(4), window(4, 8))
    request = make_request(manager, "a", range(10))
    admit(manager, request)
    assert manager.get_block_ids_for_computed_tokens("a", 5) == ([1, 2], [4, 5])
    assert manager.get_block_ids_for_computed_tokens("a", 0) == ([], [])
    assert manager.estimate_cached_tokens(request) == 8
    assert manager.get_num_common_prefix_blocks("a") == [0, 0]


def test_the_calls_for_kinds_that_are_not_managed_have_nothing_to_say() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(10))
    admit(manager, request)
    manager.new_step_starts()
    assert manager.take_kv_cache_block_copies() == ([], [])
    assert manager.take_boundary_state_offloads() == {}
    assert manager.finalize_partial_tail_offloads(request) == []


def test_equal_histories_have_equal_digests() -> None:
    managers = [
        make_manager(full(4), window(4, 8), policy=Policy(pin_min_drop_size=2)) for _ in "ab"
    ]
    for manager in managers:
        serve(manager, "a", range(30))
    assert managers[0].state_digest() == managers[1].state_digest()
