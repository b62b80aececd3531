"""Tests that every argument and attribute on which a decision depends reaches the manager.

The decisions themselves are tested with the core, in ``rust/core/tests/decisions``.
"""

from typing import Any

import pytest
from kvoxide import KVCacheGroupSpec, KVCacheManager

from tests.testing.small import (
    admit,
    allocate,
    cached_positions,
    full,
    make_manager,
    make_request,
    num_hit_tokens,
    serve,
    window,
)


@pytest.mark.parametrize(
    ("options", "hit"),
    [
        ({}, 16),
        ({"use_eagle": True}, 12),
        ({"num_prefill_lookahead": 3}, 12),
        ({"enable_caching": False}, 0),
    ],
)
def test_options_of_a_manager(options: dict[str, Any], hit: int) -> None:
    manager = make_manager(full(4), **options)
    serve(manager, "a", range(17))
    assert num_hit_tokens(manager, range(17)) == hit


@pytest.mark.parametrize(("scheduler_block_size", "hit"), [(4, 16), (12, 12)])
def test_the_block_size_of_the_scheduler(scheduler_block_size: int, hit: int) -> None:
    manager = make_manager(full(4), window(4, 8), scheduler_block_size=scheduler_block_size)
    serve(manager, "a", range(17))
    assert num_hit_tokens(manager, range(17)) == hit


@pytest.mark.parametrize(("max_in_flight_tokens", "fitting"), [(8, True), (13, False)])
def test_tokens_in_flight(max_in_flight_tokens: int, fitting: bool) -> None:
    # Five blocks: 7 tokens of the window, 8 in flight, and one block if they start inside one.
    manager = make_manager(
        window(4, 8), num_blocks=6, max_in_flight_tokens=max_in_flight_tokens, max_model_len=100
    )
    request = make_request(manager, "a", range(100))
    assert (manager.allocate_slots(request, 8, full_sequence_must_fit=True) is not None) is fitting


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({}, [1, 2, 3]),
        ({"num_lookahead_tokens": 5}, [1, 2, 3, 4]),
        ({"num_external_computed_tokens": 8}, [3, 4, 5]),
        ({"reserved_blocks": 8}, None),
        ({"full_sequence_must_fit": True}, None),
    ],
)
def test_arguments_of_allocate_slots(options: dict[str, Any], given: list[int] | None) -> None:
    manager = make_manager(full(4), num_blocks=11)
    request = make_request(manager, "a", range(44))
    blocks = manager.allocate_slots(request, 10, **options)
    assert (blocks and blocks.get_block_ids()) == (given and (given,))


def test_blocks_that_are_cached_later() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(10))
    manager.allocate_slots(request, 0, num_external_computed_tokens=8, delay_cache_blocks=True)
    assert cached_positions(manager, request) == []
    manager.cache_blocks(request, 8)
    assert cached_positions(manager, request) == [0, 1]


def test_blocks_that_are_zeroed() -> None:
    manager = make_manager(full(4), full(4), needs_kv_cache_zeroing=True)
    request = make_request(manager, "a", range(10))
    manager.allocate_slots(request, 2, num_external_computed_tokens=8, skip_zeroing_group_ids=(0,))
    assert manager.take_new_block_ids() == [5, 3, 4, 6]
    assert manager.take_new_block_ids() == []
    manager.record_blocks_for_zeroing("a", 8)
    assert manager.take_new_block_ids() == [5, 6]


def test_tokens_of_steps_in_flight() -> None:
    manager = make_manager(window(4, 8))
    request = make_request(manager, "a", range(40))
    allocate(manager, request, 24)
    request.num_in_flight_tokens = 8  # as if 16 tokens were computed; the next one needs 7 of them
    allocate(manager, request, 8)
    assert manager.get_block_ids("a") == ([0, 0, 3, 4, 5, 6, 7, 8],)


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        (KVCacheGroupSpec("full_attention", 4), [1, 2, 3, 4, 5, 6, 7]),
        (KVCacheGroupSpec("sliding_window", 4, sliding_window=8), [0, 0, 0, 0, 5, 6, 7]),
        (
            KVCacheGroupSpec("sliding_window", 4, sliding_window=8, extra_retained_tokens=4),
            [0, 0, 0, 4, 5, 6, 7],
        ),
        (
            KVCacheGroupSpec("chunked_local_attention", 4, attention_chunk_size=8),
            [0, 0, 0, 0, 0, 0, 7],
        ),
    ],
)
def test_attributes_of_a_group(spec: KVCacheGroupSpec, held: list[int]) -> None:
    manager = make_manager(spec)
    request = make_request(manager, "a", range(28))
    allocate(manager, request, 24)
    allocate(manager, request, 4)
    assert manager.get_block_ids("a") == (held,)


@pytest.mark.parametrize(("is_eagle_group", "cached"), [(False, [3, 7]), (True, [3, 4, 7])])
def test_a_group_with_draft_layers(is_eagle_group: bool, cached: list[int]) -> None:
    groups = full(32), window(8, 8, is_eagle_group=is_eagle_group)
    manager = make_manager(*groups, use_eagle=is_eagle_group)
    request = make_request(manager, "a", range(64))
    admit(manager, request)
    assert cached_positions(manager, request, group=1) == cached


def test_arguments_of_a_question() -> None:
    manager = make_manager(full(4))
    serve(manager, "a", range(8))
    request = make_request(manager, "b", range(13))
    hit, num_hit, _ = manager.get_computed_blocks(request)

    def blocks_of(**arguments: Any) -> int:
        return manager.get_num_blocks_to_allocate(request, 13, **arguments)

    assert blocks_of() == 4
    with_hit = {"new_computed_blocks": hit, "num_local_computed_tokens": num_hit}
    assert blocks_of(**with_hit, total_computed_tokens=num_hit) == 4  # two new, two from the queue
    admit(manager, request)
    assert manager.get_num_blocks_to_allocate(request, 17) == 1


def capped(manager: KVCacheManager, apply_admission_cap: bool) -> int:
    request = make_request(manager, "a", range(100))
    return manager.get_num_blocks_to_allocate(request, 100, apply_admission_cap=apply_admission_cap)


def test_a_question_with_a_cap() -> None:
    manager = make_manager(window(4, 8), max_in_flight_tokens=8)
    assert [capped(manager, apply) for apply in (False, True)] == [25, 5]


def test_calls_that_answer_whether_they_did_something() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(10))
    admit(manager, request)
    assert not manager.reset_prefix_cache()
    manager.free(request)
    before = manager.state_digest()
    assert len(before) == 32
    manager.evict_blocks([1])
    assert manager.state_digest() != before
    assert manager.reset_prefix_cache()
    assert manager.block_pool.get_num_cached_blocks() == 0
