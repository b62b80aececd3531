"""Tests of the longest prefix that every group can continue from."""

import pytest
from kvoxide import KVCacheGroupSpec

from tests.testing.small import (
    admit,
    chunked,
    decode,
    full,
    make_manager,
    make_request,
    num_hit_tokens,
    serve,
    window,
)


def test_a_window_needs_all_of_its_blocks() -> None:
    manager = make_manager(window(4, 12))  # 11 tokens before the next one are three blocks
    serve(manager, "a", range(32))
    manager.evict_blocks([6])
    hit, num_hit, _ = manager.get_computed_blocks(make_request(manager, "b", range(33)))
    assert (num_hit, hit.get_block_ids()) == (20, ([0, 0, 3, 4, 5],))


def test_a_window_at_the_start_needs_what_there_is() -> None:
    manager = make_manager(window(4, 100))
    serve(manager, "a", range(10))
    assert num_hit_tokens(manager, range(10)) == 8


@pytest.mark.parametrize("kind", ["full_attention", "mla_attention"])
def test_kinds_of_full_attention(kind: str) -> None:
    manager = make_manager(
        KVCacheGroupSpec(kind, 4),  # type: ignore[arg-type]
        enable_kv_cache_events=True,
    )
    serve(manager, "a", range(16))
    assert num_hit_tokens(manager, range(17)) == 16
    (event,) = manager.take_events()
    assert getattr(event, "kv_cache_spec_kind", None) == kind


@pytest.mark.parametrize("kind", ["sliding_window", "sliding_window_mla"])
def test_kinds_of_sliding_window(kind: str) -> None:
    manager = make_manager(
        KVCacheGroupSpec(kind, 4, sliding_window=8),  # type: ignore[arg-type]
        enable_kv_cache_events=True,
    )
    serve(manager, "a", range(16))
    hit, num_hit, _ = manager.get_computed_blocks(make_request(manager, "b", range(17)))
    assert (num_hit, hit.get_block_ids()) == (16, ([0, 0, 3, 4],))
    (event,) = manager.take_events()
    assert getattr(event, "kv_cache_spec_kind", None) == kind
    assert getattr(event, "kv_cache_spec_sliding_window", None) == 8


def test_finished_chunks_are_hit_without_having_been_cached() -> None:
    manager = make_manager(chunked(4, 8))
    hit, num_hit, _ = manager.get_computed_blocks(make_request(manager, "a", range(20)))
    assert (num_hit, hit.get_block_ids()) == (16, ([0, 0, 0, 0],))


def test_full_and_chunked_groups_together() -> None:
    manager = make_manager(full(4), chunked(4, 8))
    serve(manager, "a", range(22))
    hit, num_hit, _ = manager.get_computed_blocks(make_request(manager, "b", range(22)))
    assert num_hit == 20
    assert hit.get_block_ids() == ([1, 2, 3, 4, 5], [0, 0, 0, 0, 11])


def test_a_group_outside_the_cache_starts_anew() -> None:
    scratch = KVCacheGroupSpec("sliding_window_mla", 4, sliding_window=8, prefix_cacheable=False)
    manager = make_manager(full(4), scratch, num_blocks=21)
    serve(manager, "a", range(16))
    request = make_request(manager, "b", range(17))
    hit, num_hit, _ = manager.get_computed_blocks(request)
    assert (num_hit, hit.get_block_ids()) == (16, ([1, 2, 3, 4], []))

    admit(manager, request)
    # Token 16 attends to 9 and later. From there on, the scratch group allocates new blocks.
    assert manager.get_block_ids("b") == ([1, 2, 3, 4, 8], [0, 0, 7, 6, 5])


def test_output_tokens_can_be_hit() -> None:
    manager = make_manager(full(4))
    request = make_request(manager, "a", range(6))
    admit(manager, request)
    decode(manager, request, [100, 101, 102, 103])
    manager.free(request)
    assert num_hit_tokens(manager, [*range(6), 100, 101, 7]) == 8


def test_a_look_up_for_a_connector_is_a_look_up() -> None:
    manager = make_manager(full(4), window(4, 8))
    serve(manager, "a", range(16))
    request = make_request(manager, "b", range(17))
    hit, num_hit, boundary, diverged = manager.get_computed_blocks_for_connector(request)
    assert (num_hit, boundary, diverged) == (16, 0, False)
    assert hit.get_block_ids() == ([1, 2, 3, 4], [0, 0, 7, 8])
