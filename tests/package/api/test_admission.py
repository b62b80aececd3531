"""Slots: what is given, what is refused, and what comes from elsewhere."""

from typing import Any

import pytest
from kvoxide import KVCacheManager, RequestStatus

from tests.testing.small import (
    admit,
    allocate,
    cached_positions,
    decode,
    full,
    make_manager,
    make_request,
    num_hit_tokens,
    serve,
    window,
)


def fits(manager: KVCacheManager, num_tokens: int, **options: Any) -> bool:
    """Whether a waiting request of so many tokens gets its slots."""
    request = make_request(manager, "new", range(num_tokens))
    return manager.allocate_slots(request, num_tokens, **options) is not None


def test_what_does_not_fit_is_refused() -> None:
    manager = make_manager(full(4), num_blocks=11)
    assert not fits(manager, 41)
    assert manager.block_pool.get_num_free_blocks() == 10
    assert fits(manager, 40)


def test_free_blocks_of_a_hit_are_not_free_for_the_rest() -> None:
    manager = make_manager(full(4), num_blocks=11)
    serve(manager, "a", range(20))
    admit(manager, make_request(manager, "b", range(100, 120)))
    request = make_request(manager, "c", range(21))
    hit, num_hit, _ = manager.get_computed_blocks(request)
    assert num_hit == 20
    slots = manager.allocate_slots(request, 1, num_hit, hit)
    assert slots is None  # five blocks are free, all of the hit; a sixth is needed


def test_a_request_that_was_refused_can_be_asked_again() -> None:
    manager = make_manager(full(4), num_blocks=6)
    first = make_request(manager, "a", range(12))
    second = make_request(manager, "b", range(50, 62))
    admit(manager, first)
    assert manager.allocate_slots(second, 12) is None
    manager.free(first)
    assert admit(manager, second) == 0


def test_a_running_request_that_does_not_fit_keeps_what_it_has() -> None:
    manager = make_manager(full(4), num_blocks=4)
    request = make_request(manager, "a", range(12))
    admit(manager, request)
    request.append_output_token_ids(9)
    assert manager.allocate_slots(request, 1) is None
    assert manager.get_block_ids("a") == ([1, 2, 3],)


def test_the_watermark_is_kept_free() -> None:
    manager = make_manager(full(4), num_blocks=11, watermark=0.2)
    assert manager.watermark_blocks == 2
    assert not fits(manager, 36)
    assert fits(manager, 32)


def test_the_watermark_is_not_for_the_only_request() -> None:
    manager = make_manager(full(4), num_blocks=11, watermark=0.2)
    assert fits(manager, 40, has_scheduled_reqs=False)


@pytest.mark.parametrize(
    ("status", "fitting"),
    [
        (RequestStatus.WAITING, False),
        (RequestStatus.PREEMPTED, False),
        (RequestStatus.RUNNING, True),
    ],
)
def test_the_watermark_is_not_for_running_requests(status: RequestStatus, fitting: bool) -> None:
    manager = make_manager(full(4), num_blocks=11, watermark=0.2)
    request = make_request(manager, "a", range(40))
    request.status = status
    assert (manager.allocate_slots(request, 40) is not None) is fitting


def test_reserved_blocks_are_left_for_others() -> None:
    manager = make_manager(full(4), num_blocks=11)
    assert not fits(manager, 24, reserved_blocks=5)
    assert fits(manager, 24, reserved_blocks=4)


@pytest.mark.parametrize(("num_tokens", "fitting"), [(40, True), (41, False)])
def test_the_full_sequence_must_fit(num_tokens: int, fitting: bool) -> None:
    manager = make_manager(full(4), num_blocks=11)
    request = make_request(manager, "a", range(num_tokens))
    blocks = manager.allocate_slots(request, 4, full_sequence_must_fit=True)
    assert (blocks is not None) is fitting


@pytest.mark.parametrize(("num_blocks", "fitting"), [(6, True), (5, False)])
def test_a_window_is_admitted_by_what_it_holds_at_once(num_blocks: int, fitting: bool) -> None:
    # 7 tokens of the window and 8 in flight are 4 blocks, and one more if they start inside one.
    manager = make_manager(window(4, 8), num_blocks=num_blocks, max_in_flight_tokens=8)
    request = make_request(manager, "a", range(100))
    blocks = manager.allocate_slots(request, 8, full_sequence_must_fit=True)
    assert (blocks is not None) is fitting


def test_by_default_a_whole_model_length_is_in_flight() -> None:
    manager = make_manager(window(4, 8), num_blocks=21, max_model_len=100)
    request = make_request(manager, "a", range(100))
    assert manager.allocate_slots(request, 8, full_sequence_must_fit=True) is None


def test_no_slots_beyond_the_model_length() -> None:
    manager = make_manager(full(4), max_model_len=16)
    request = make_request(manager, "a", range(14))
    blocks = allocate(manager, request, 14, num_lookahead_tokens=10)
    assert blocks.get_block_ids() == ([1, 2, 3, 4],)


def test_lookahead_tokens_get_slots_and_are_not_cached() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(8))
    assert allocate(manager, request, 8, num_lookahead_tokens=5).get_block_ids() == ([1, 2, 3, 4],)
    assert cached_positions(manager, request) == [0, 1]
    request.append_output_token_ids(9)
    assert allocate(manager, request, 1, num_lookahead_tokens=5).get_block_ids() == ([],)


def test_draft_tokens_are_not_cached() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(6))
    allocate(manager, request, 6)
    allocate(manager, request, 5)  # none of them verified
    assert manager.get_block_ids("a") == ([1, 2, 3],)
    assert cached_positions(manager, request) == [0]


def test_external_tokens_get_blocks() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(10))
    new = manager.allocate_slots(request, 2, num_external_computed_tokens=8)
    assert new is not None
    assert new.get_block_ids() == ([3],)  # besides those for the external tokens
    assert manager.get_block_ids("a") == ([1, 2, 3],)
    assert cached_positions(manager, request) == [0, 1]


def test_external_tokens_continue_a_local_hit() -> None:
    manager = make_manager(full(4))
    serve(manager, "a", range(4))
    request = make_request(manager, "b", range(14))
    hit, num_hit, _ = manager.get_computed_blocks(request)
    assert num_hit == 4
    new = manager.allocate_slots(request, 2, num_hit, hit, num_external_computed_tokens=8)
    assert new is not None
    assert new.get_block_ids() == ([4],)
    assert manager.get_block_ids("b") == ([1, 2, 3, 4],)


def test_external_tokens_behind_the_window_take_no_block() -> None:
    manager = make_manager(window(4, 8))
    request = make_request(manager, "a", range(34))
    manager.allocate_slots(request, 2, num_external_computed_tokens=32)
    # Token 32 attends to 25 and later.
    assert manager.get_block_ids("a") == ([0, 0, 0, 0, 0, 0, 1, 2, 3],)


def test_delayed_blocks_are_cached_when_they_are_there() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(10))
    new = manager.allocate_slots(
        request, 0, num_external_computed_tokens=8, delay_cache_blocks=True
    )
    assert new is not None
    assert new.get_block_ids() == ([],)
    assert manager.get_block_ids("a") == ([1, 2],)
    assert cached_positions(manager, request) == []
    assert num_hit_tokens(manager, range(10)) == 0

    manager.cache_blocks(request, 8)
    assert cached_positions(manager, request) == [0, 1]
    request.num_computed_tokens = 8
    assert allocate(manager, request, 2).get_block_ids() == ([3],)
    assert num_hit_tokens(manager, range(10)) == 8


def test_new_blocks_are_listed_for_zeroing() -> None:
    manager = make_manager(full(4), window(4, 8), needs_kv_cache_zeroing=True)
    request = make_request(manager, "a", range(10))
    admit(manager, request)
    assert manager.take_new_block_ids() == [1, 2, 3, 4, 5, 6]
    assert manager.take_new_block_ids() == []
    decode(manager, request, [100, 101, 102])
    assert manager.take_new_block_ids() == [7, 8]


def test_blocks_of_a_hit_are_not_zeroed() -> None:
    manager = make_manager(full(4), needs_kv_cache_zeroing=True)
    serve(manager, "a", range(8))
    manager.take_new_block_ids()
    admit(manager, make_request(manager, "b", range(10)))
    assert manager.take_new_block_ids() == [3]


def test_without_zeroing_nothing_is_listed() -> None:
    manager = make_manager(full(4))
    admit(manager, make_request(manager, "a", range(10)))
    assert manager.take_new_block_ids() == []


@pytest.mark.parametrize(
    ("skipped_groups", "expected"),
    [((), [1, 2, 5, 3, 4, 6]), ((0,), [5, 3, 4, 6]), ((0, 1), [5, 6])],
)
def test_blocks_that_a_load_writes_are_not_zeroed(
    skipped_groups: tuple[int, ...], expected: list[int]
) -> None:
    manager = make_manager(full(4), full(4), needs_kv_cache_zeroing=True)
    request = make_request(manager, "a", range(10))
    manager.allocate_slots(
        request, 2, num_external_computed_tokens=8, skip_zeroing_group_ids=skipped_groups
    )
    assert manager.take_new_block_ids() == expected


def test_blocks_can_be_listed_again() -> None:
    manager = make_manager(full(4), needs_kv_cache_zeroing=True)
    admit(manager, make_request(manager, "a", range(14)))
    manager.take_new_block_ids()
    manager.record_blocks_for_zeroing("a", 8)
    assert manager.take_new_block_ids() == [3, 4]
