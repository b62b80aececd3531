"""The longest prefix that every group can continue from."""

import pytest
from kvoxide import KVCacheGroupSpec

from tests.testing.small import (
    admit,
    allocate,
    chunked,
    decode,
    full,
    make_manager,
    make_request,
    num_hit_tokens,
    serve,
    window,
)


def test_the_shortest_group_decides() -> None:
    manager = make_manager(full(4), window(4, 8))
    serve(manager, "a", range(32))
    manager.evict_blocks([16])  # the window group's block 7

    hit, num_hit, boundary = manager.get_computed_blocks(make_request(manager, "b", range(33)))
    assert (num_hit, boundary) == (28, 32)  # full attention alone would have reached 32
    assert hit.get_block_ids() == ([1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 0, 14, 15])


def test_a_window_needs_all_of_its_blocks() -> None:
    manager = make_manager(window(4, 12))  # 11 tokens before the next one: three blocks
    serve(manager, "a", range(32))
    manager.evict_blocks([6])
    hit, num_hit, _ = manager.get_computed_blocks(make_request(manager, "b", range(33)))
    assert (num_hit, hit.get_block_ids()) == (20, ([0, 0, 3, 4, 5],))


def test_a_window_at_the_start_needs_what_there_is() -> None:
    manager = make_manager(window(4, 100))
    serve(manager, "a", range(10))
    assert num_hit_tokens(manager, range(10)) == 8


def test_hits_are_aligned_to_the_least_common_multiple() -> None:
    manager = make_manager(full(8), window(12, 24))
    serve(manager, "a", range(64))
    assert num_hit_tokens(manager, range(64)) == 48
    assert num_hit_tokens(manager, range(48)) == 24


def test_groups_with_equal_specs_hit_together() -> None:
    manager = make_manager(full(4), full(4))
    serve(manager, "a", range(12))
    manager.evict_blocks([6])  # the second group's block 2
    hit, num_hit, _ = manager.get_computed_blocks(make_request(manager, "b", range(13)))
    assert (num_hit, hit.get_block_ids()) == (8, ([1, 2], [4, 5]))


def test_three_groups_settle_on_one_length() -> None:
    manager = make_manager(full(4), window(4, 8), window(4, 16), num_blocks=61)
    serve(manager, "a", range(40))
    manager.evict_blocks([20, 27])  # blocks 9 of the short window, 6 of the long one
    hit, num_hit, boundary = manager.get_computed_blocks(make_request(manager, "b", range(41)))
    # The short window allows 36 and less; the long one needs blocks below 6 then.
    assert (num_hit, boundary) == (24, 40)
    assert hit.get_block_ids() == (
        [1, 2, 3, 4, 5, 6],
        [0, 0, 0, 0, 15, 16],
        [0, 0, 23, 24, 25, 26],
    )


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


def test_a_chunk_needs_only_its_own_blocks() -> None:
    manager = make_manager(chunked(4, 8))
    serve(manager, "a", range(20), skip_reading_prefix_cache=True)
    # Token 15 attends to 8 and later; token 16 starts a chunk.
    for num_tokens, expected in [(16, [0, 0, 3]), (17, [0, 0, 0, 0]), (21, [0, 0, 0, 0, 5])]:
        request = make_request(manager, "b", range(num_tokens))
        hit, num_hit, _ = manager.get_computed_blocks(request)
        assert hit.get_block_ids() == (expected,)
        assert num_hit == 4 * len(expected)


def test_finished_chunks_are_hit_without_having_been_cached() -> None:
    manager = make_manager(chunked(4, 8))
    hit, num_hit, _ = manager.get_computed_blocks(make_request(manager, "a", range(20)))
    assert (num_hit, hit.get_block_ids()) == (16, ([0, 0, 0, 0],))


def test_a_finished_chunk_is_given_back() -> None:
    manager = make_manager(chunked(4, 8))
    request = make_request(manager, "a", range(20))
    allocate(manager, request, 12)
    allocate(manager, request, 4)
    assert manager.get_block_ids("a") == ([0, 0, 3, 4],)
    allocate(manager, request, 4)
    assert manager.get_block_ids("a") == ([0, 0, 0, 0, 5],)


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
    # Token 16 attends to 9 and later: the scratch group takes new blocks from there on.
    assert manager.get_block_ids("b") == ([1, 2, 3, 4, 8], [0, 0, 7, 6, 5])


def test_eagle_drops_the_last_block_of_a_hit() -> None:
    for use_eagle, hit in [(False, 12), (True, 8)]:
        manager = make_manager(full(4), use_eagle=use_eagle)
        serve(manager, "a", range(14))
        assert num_hit_tokens(manager, range(14)) == hit


@pytest.mark.parametrize(
    ("flagged", "use_eagle", "hit"),
    [(False, False, 16), (False, True, 12), (True, True, 12), (True, False, 16)],
)
def test_a_drop_in_one_group_shortens_the_hit_of_all(
    flagged: bool, use_eagle: bool, hit: int
) -> None:
    groups = full(4), window(4, 8, is_eagle_group=flagged)
    manager = make_manager(*groups, use_eagle=use_eagle)
    serve(manager, "a", range(17))
    assert num_hit_tokens(manager, range(17)) == hit


def test_eagle_matches_a_block_beyond_the_bound() -> None:
    manager = make_manager(full(4), window(4, 8), use_eagle=True)
    serve(manager, "a", range(24))
    request = make_request(manager, "b", range(24))
    hit, num_hit, _ = manager.get_computed_blocks(request)
    assert (num_hit, hit.get_block_ids()) == (20, ([1, 2, 3, 4, 5], [0, 0, 0, 10, 11]))


def test_tokens_that_are_prefilled_again_are_not_cached() -> None:
    manager = make_manager(full(4), num_prefill_lookahead=3)
    serve(manager, "a", range(13))  # the last two tokens can still change
    assert num_hit_tokens(manager, range(13)) == 8


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
