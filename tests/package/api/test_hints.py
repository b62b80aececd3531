"""Tests of sessions and hints of requests: ranges, released tokens, and the ends of sessions."""

import itertools
from typing import Any

import pytest
from kvoxide import KVCacheManager, Policy, Request, RequestStatus, Retention

from tests.testing.small import admit, make_manager, make_request, num_hit_tokens, serve

# The pool has 40 blocks of four tokens.
OLDER = range(1, 4)
NEW_PROMPTS = itertools.count(100)


def make_adaptive(**options: Any) -> KVCacheManager:
    return make_manager(policy=Policy(retention="adaptive"), **options)


def own(prompt: int, num_tokens: int = 33) -> range:
    """Return a prompt of eight blocks and one more token."""
    return range(prompt * 10_000, prompt * 10_000 + num_tokens)


def num_cached(manager: KVCacheManager, prompt: int) -> int:
    return num_hit_tokens(manager, own(prompt)) // 4


def num_older(manager: KVCacheManager) -> int:
    return sum(num_cached(manager, prompt) for prompt in OLDER)


def fill(manager: KVCacheManager) -> None:
    """Serve prompts that do not come back."""
    for _ in range(30):
        serve(manager, "fill", own(next(NEW_PROMPTS)))


def evict(manager: KVCacheManager, num_blocks: int) -> None:
    """Serve a prompt of new blocks, for which this number of cached blocks is evicted."""
    report = manager.retention_report()
    assert report is not None
    num_tokens = (report.empty_blocks + num_blocks) * 4
    serve(manager, "newest", own(next(NEW_PROMPTS), num_tokens))


def with_older() -> KVCacheManager:
    manager = make_adaptive()
    for prompt in OLDER:
        serve(manager, f"older {prompt}", own(prompt))
    return manager


def test_only_the_range_of_a_retention_outlasts_traffic() -> None:
    manager = make_adaptive()
    serve(manager, "a", own(1), retention=Retention(priority=80, end=16))
    fill(manager)
    assert num_cached(manager, 1) == 4


def test_the_last_of_several_ranges_counts() -> None:
    manager = make_adaptive()
    ranges = [Retention(priority=80), Retention(priority=50, start=8)]
    serve(manager, "a", own(1), retention=ranges)
    fill(manager)
    assert num_cached(manager, 1) == 2


@pytest.mark.parametrize(
    ("hints", "kept"), [({"release": [(16, 32)]}, 4), ({"ends_session": True}, 0), ({}, 8)]
)
def test_released_tokens_are_evicted_first(hints: dict[str, Any], kept: int) -> None:
    manager = with_older()
    serve(manager, "a", own(9), session_id="s", **hints)
    evict(manager, 8 - kept)
    assert (num_cached(manager, 9), num_older(manager)) == (kept, 24)


def test_tokens_that_another_session_hit_are_not_released() -> None:
    manager = with_older()
    serve(manager, "a", own(9), session_id="a")
    serve(manager, "b", own(9), session_id="b")
    serve(manager, "end", own(9), session_id="a", ends_session=True)
    evict(manager, 4)
    assert (num_cached(manager, 9), num_older(manager)) == (8, 20)


def test_tokens_that_the_same_session_hit_are_released() -> None:
    manager = with_older()
    serve(manager, "a", own(9), session_id="a")
    serve(manager, "end", own(9), session_id="a", ends_session=True)
    evict(manager, 8)
    assert (num_cached(manager, 9), num_older(manager)) == (0, 24)


@pytest.mark.parametrize("pops", [False, True])
def test_a_preempted_request_releases_nothing(pops: bool) -> None:
    manager = with_older()
    request = make_request(manager, "a", own(9), session_id="a", ends_session=True)

    def end(status: RequestStatus) -> None:
        request.status = status
        if pops:
            blocks = manager.pop_blocks_for_free(request)
            manager.block_pool.free_blocks(reversed(blocks))
        else:
            manager.free(request)
        request.num_computed_tokens = 0

    admit(manager, request)
    end(RequestStatus.PREEMPTED)
    evict(manager, 4)
    assert (num_cached(manager, 9), num_older(manager)) == (8, 20)
    assert admit(manager, request) == 32
    end(RequestStatus.FINISHED)
    evict(manager, 8)
    # The second admission took one block more.
    assert (num_cached(manager, 9), num_older(manager)) == (0, 19)


def test_a_session_may_come_back_after_its_end() -> None:
    manager = make_adaptive()
    for turn in range(1, 7):
        request = make_request(
            manager, f"{turn}", own(1, 4 * turn + 1), session_id="s", ends_session=turn % 2 == 0
        )
        assert admit(manager, request) == 4 * (turn - 1)
        manager.free(request)


def test_a_session_id_of_a_megabyte_is_served() -> None:
    manager = make_adaptive()
    for _ in range(2):
        serve(manager, "a", own(1), session_id="s" * 1_000_000)
    assert num_cached(manager, 1) == 8


def test_a_session_alone_needs_no_adaptive_retention() -> None:
    manager = make_manager()
    serve(manager, "a", own(1), session_id="s")
    assert num_cached(manager, 1) == 8


def test_hints_can_be_read_from_the_request() -> None:
    ranges = [Retention(priority=80, ttl=5.0, start=4, end=8), Retention(priority=20, start=8)]
    manager = make_adaptive()
    request = make_request(
        manager, "a", own(1), retention=tuple(ranges), release=[(4, None)], ends_session=True
    )
    assert request.retention == ranges
    assert (request.release, request.ends_session) == ([(4, None)], True)
    plain: Request = make_request(manager, "b", own(1))
    assert (plain.retention, plain.release, plain.ends_session) == (None, [], False)
    assert repr(ranges[0]) == "Retention(priority=80, ttl=5.0, start=4, end=8)"
    assert ranges[1] != Retention(priority=20)
    assert make_request(manager, "c", own(1), retention=ranges[1]).retention == ranges[1]
