"""Tests of slots: which are allocated, which are refused, and which a connector fills."""

from typing import Any

import pytest
from kvoxide import KVCacheManager, RequestStatus

from tests.testing.small import (
    admit,
    allocate,
    cached_positions,
    full,
    make_manager,
    make_request,
    serve,
    window,
)


def fits(manager: KVCacheManager, num_tokens: int, **options: Any) -> bool:
    """Return whether a waiting request of ``num_tokens`` tokens gets its slots."""
    request = make_request(manager, "new", range(num_tokens))
    return manager.allocate_slots(request, num_tokens, **options) is not None


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


def test_by_default_a_whole_model_length_is_in_flight() -> None:
    manager = make_manager(window(4, 8), num_blocks=21, max_model_len=100)
    request = make_request(manager, "a", range(100))
    assert manager.allocate_slots(request, 8, full_sequence_must_fit=True) is None


def test_lookahead_tokens_get_slots_and_are_not_cached() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(8))
    assert allocate(manager, request, 8, num_lookahead_tokens=5).get_block_ids() == ([1, 2, 3, 4],)
    assert cached_positions(manager, request) == [0, 1]
    request.append_output_token_ids(9)
    assert allocate(manager, request, 1, num_lookahead_tokens=5).get_block_ids() == ([],)


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
