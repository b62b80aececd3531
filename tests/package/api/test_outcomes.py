"""Tests of the outcomes of prompts: the reason why each token was hit or not."""

from collections.abc import Callable

import numpy as np
import pytest
from kvoxide import BlockHasher, KVCacheManager, OutcomeReport, Policy, Request, RequestError

from tests.testing.clock import Clock
from tests.testing.small import full, make_manager, window

HASHER = BlockHasher(16)

NAMES = [
    "hit_gpu",
    "hit_host",
    "hit_answer",
    "first_time",
    "below_block",
    "evicted_full",
    "evicted_tail",
    "never_cached",
    "other_salt_or_adapter",
    "not_cacheable",
]


def observed(manager: KVCacheManager) -> KVCacheManager:
    manager.observe_outcomes(per_request=True)
    return manager


def serve(
    manager: KVCacheManager,
    first: int,
    num_tokens: int,
    *,
    num_answer: int = 0,
    external: int = 0,
    skip: bool = False,
    salt: str | None = None,
    adapter: str | None = None,
    hasher: BlockHasher = HASHER,
    name: str = "a",
    finish: bool = True,
) -> Request:
    """Serve a request whose tokens count up."""
    tokens = np.arange(first, first + num_tokens, dtype=np.int32)
    request = Request(
        name,
        tokens,
        block_hasher=hasher,
        skip_reading_prefix_cache=skip,
        cache_salt=salt,
        lora=(adapter, "/path") if adapter else None,
    )
    hit, num_hit, request.shared_prefix_boundary = manager.get_computed_blocks(request)
    num_new = num_tokens - num_hit - external
    new = manager.allocate_slots(
        request, num_new, num_hit, hit, num_external_computed_tokens=external
    )
    assert new is not None
    request.num_computed_tokens = num_tokens
    if num_answer:
        request.append_output_token_ids(
            list(range(first + num_tokens, first + num_tokens + num_answer))
        )
        assert manager.allocate_slots(request, num_answer) is not None
    if finish:
        manager.free(request)
    return request


def report(manager: KVCacheManager) -> OutcomeReport:
    found = manager.outcome_report()
    assert found is not None
    return found


def last(manager: KVCacheManager) -> dict[str, int]:
    """Return the outcomes of the last request, without zeros."""
    _, counts = manager.take_outcomes()[-1]
    return {name: n for name, n in zip(NAMES, counts, strict=True) if n}


def test_nothing_is_observed_without_the_call() -> None:
    manager = make_manager(full(16))
    serve(manager, 0, 100)
    assert manager.outcome_report() is None
    with pytest.raises(RequestError, match=r"Call observe_outcomes\(per_request=True\)"):
        manager.take_outcomes()


def test_observation_starts_before_the_first_request() -> None:
    manager = make_manager(full(16))
    serve(manager, 0, 100)
    with pytest.raises(RequestError, match="has already served requests"):
        manager.observe_outcomes()
    new = observed(make_manager(full(16)))
    serve(new, 0, 100)
    new.observe_outcomes()
    assert report(new).outcomes["first_time"] == 100


def test_a_new_report_has_all_names() -> None:
    found = report(observed(make_manager(full(16))))
    assert list(found.outcomes) == NAMES
    assert found.evictions == {"full": 0, "tail": 0}
    assert found.reuse_gap_bounds == [2.0**i for i in range(18)]
    assert (found.reuse_gap_counts, found.reuse_gap_sum) == ([0] * 19, 0.0)


def test_a_repeated_prompt_hits_all_but_its_last_block() -> None:
    manager = observed(make_manager(full(16), num_blocks=100))
    serve(manager, 0, 96)
    assert last(manager) == {"first_time": 96}
    serve(manager, 0, 96)
    assert last(manager) == {"hit_gpu": 80, "below_block": 15, "not_cacheable": 1}
    assert sum(report(manager).outcomes.values()) == 192


def test_a_longer_prompt_hits_the_answer() -> None:
    manager = observed(make_manager(full(16), num_blocks=100))
    serve(manager, 0, 40, num_answer=40)
    serve(manager, 0, 120)
    assert last(manager) == {"hit_gpu": 32, "hit_answer": 48, "first_time": 40}


def test_tokens_of_a_connector_are_hits() -> None:
    manager = observed(make_manager(full(16), num_blocks=100))
    serve(manager, 0, 100, external=48)
    assert last(manager) == {"hit_host": 48, "first_time": 52}


def test_text_under_another_salt_or_adapter_is_found() -> None:
    manager = observed(make_manager(full(16), num_blocks=100))
    serve(manager, 0, 96, salt="a")
    assert last(manager) == {"first_time": 96}
    for salt, adapter in (("b", None), (None, "x"), ("a", "x"), ("", None)):
        serve(manager, 0, 96, salt=salt, adapter=adapter)
        assert last(manager) == {"other_salt_or_adapter": 96}, (salt, adapter)
    serve(manager, 0, 96, salt="b")
    assert last(manager) == {"hit_gpu": 80, "below_block": 15, "not_cacheable": 1}


def test_text_of_requests_without_tokens_is_not_compared() -> None:
    manager = observed(make_manager(full(16), num_blocks=100))
    for salt in ("a", "b"):
        hashes = [bytes([ord(salt), n]) * 16 for n in range(6)]
        request = Request(salt, block_hashes=hashes, num_prompt_tokens=96, cache_salt=salt)
        assert manager.allocate_slots(request, 96) is not None
        assert last(manager) == {"first_time": 96}


@pytest.mark.parametrize("hash_block_size", [96, 16])
def test_a_start_that_is_shorter_than_a_block_is_below_it(hash_block_size: int) -> None:
    groups = (full(96),) if hash_block_size == 96 else (full(96), window(16, 32))
    manager = observed(make_manager(*groups, num_blocks=200))
    hasher = BlockHasher(hash_block_size)
    serve(manager, 0, 80, hasher=hasher)
    serve(manager, 0, 90, hasher=hasher)
    assert last(manager) == {"below_block": 80, "first_time": 10}
    serve(manager, 1, 90, hasher=hasher)
    assert last(manager) == {"first_time": 90}


def test_a_request_that_skips_the_cache_cannot_hit() -> None:
    manager = observed(make_manager(full(16), num_blocks=100))
    serve(manager, 0, 100)
    serve(manager, 0, 100, skip=True)
    assert last(manager) == {"not_cacheable": 100}


def test_nothing_can_be_hit_without_caching() -> None:
    manager = observed(make_manager(full(16), num_blocks=100, enable_caching=False))
    serve(manager, 0, 100)
    assert last(manager) == {"not_cacheable": 100}


def test_an_evicted_prompt_is_told_from_a_new_one_and_its_age_is_counted() -> None:
    clock = Clock()
    manager = observed(make_manager(full(16), num_blocks=401, max_model_len=8192, clock=clock))
    serve(manager, 0, 320)
    serve(manager, 5000, 6400)
    clock.now += 100
    serve(manager, 0, 320, finish=False)
    assert last(manager) == {"evicted_full": 304, "below_block": 15, "not_cacheable": 1}
    found = report(manager)
    assert (found.evictions["full"], found.reuse_gap_counts[7]) == (40, 20)
    assert found.reuse_gap_sum == pytest.approx(2000, abs=2)
    serve(manager, 0, 320, name="b")
    assert report(manager).reuse_gap_counts == found.reuse_gap_counts


def test_windows_are_evicted_or_never_cached() -> None:
    groups = (full(16), window(16, 32))
    manager = observed(make_manager(*groups, num_blocks=200))
    request = serve(manager, 0, 320, finish=False)
    windows = manager.get_block_ids("a")[1]
    manager.free(request)
    manager.block_pool.evict_blocks(windows)
    serve(manager, 0, 200)
    assert last(manager) == {"evicted_tail": 192, "first_time": 8}
    policy = Policy(retention="standard", retention_interval=0)
    manager = observed(make_manager(*groups, num_blocks=200, policy=policy))
    serve(manager, 0, 320)
    serve(manager, 0, 200)
    assert last(manager) == {"never_cached": 192, "first_time": 8}


def test_a_preempted_request_counts_once() -> None:
    manager = observed(make_manager(full(16), num_blocks=100))
    request = serve(manager, 0, 100)
    request.num_computed_tokens, request.num_preemptions = 0, 1
    hit, num_hit, _ = manager.get_computed_blocks(request)
    assert manager.allocate_slots(request, 100 - num_hit, num_hit, hit) is not None
    assert len(manager.take_outcomes()) == 1
    assert sum(report(manager).outcomes.values()) == 100


def test_a_reset_forgets_what_was_evicted() -> None:
    manager = observed(make_manager(full(16), num_blocks=41))
    serve(manager, 0, 320)
    assert manager.reset_prefix_cache()
    serve(manager, 0, 320)
    assert last(manager) == {"first_time": 320}


def test_only_the_latest_requests_are_kept() -> None:
    manager = observed(make_manager(full(16), num_blocks=10))
    for i in range(4100):
        serve(manager, 0, 1, name=str(i))
    taken = manager.take_outcomes()
    assert [name for name, _ in taken] == [str(i) for i in range(4, 4100)]
    assert manager.take_outcomes() == []


@pytest.mark.parametrize(
    "make", [lambda: make_manager(full(16)), lambda: make_manager(window(16, 32))]
)
def test_decisions_are_the_same(make: Callable[[], KVCacheManager]) -> None:
    managers = [make(), observed(make())]
    for i in range(30):
        for manager in managers:
            serve(manager, i % 7 * 100, 20 + i * 3, num_answer=i % 5)
        assert managers[0].state_digest() == managers[1].state_digest()
