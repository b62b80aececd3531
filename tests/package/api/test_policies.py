"""Tests which blocks are kept: by recycle order, reachable-block mask, retention interval, and the
pinned tier. The tier allocates blocks that later hits need last (vLLM PR 40676)."""

import re
from typing import Any, Literal

import pytest
from kvoxide import DEFAULT_PIN_MIN_DROP_SIZE, BlockRemoved, ConfigError, KVCacheManager, Policy
from kvoxide.lab.replay.input import parse_policy
from kvoxide.vllm.environment import Settings, settings

from tests.testing.paths import ROOT
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
    pinned_ids,
    serve,
    window,
)


def cached_in_window(num_tokens: int, *groups: Any, **options: Any) -> list[int]:
    """Return the positions cached in the second group after a prompt of ``num_tokens`` tokens."""
    manager = make_manager(*groups, num_blocks=100, **options)
    request = make_request(manager, "a", range(num_tokens))
    admit(manager, request)
    return cached_positions(manager, request, group=1)


@pytest.mark.parametrize(
    ("order", "hit"),
    [("uncached-first", 8), ("fifo", 0)],
)
def test_fifo_loses_what_uncached_first_keeps(
    order: Literal["uncached-first", "fifo"], hit: int
) -> None:
    manager = make_manager(full(4), num_blocks=6, policy=Policy(recycle_order=order))
    serve(manager, "a", range(11))
    for i in range(2):
        serve(manager, f"short {i}", [50 + i])
    admit(manager, make_request(manager, "b", range(60, 71)))
    assert num_hit_tokens(manager, range(11)) == hit


def test_without_caching_every_block_is_uncached() -> None:
    manager = make_manager(
        full(4), num_blocks=6, enable_caching=False, policy=Policy(recycle_order="fifo")
    )
    serve(manager, "a", range(10))
    assert free_ids(manager) == [4, 5, 3, 2, 1]


def test_masked_blocks_do_not_shorten_a_hit() -> None:
    manager = make_manager(full(32), window(8, 8))
    serve(manager, "a", range(64))
    assert num_hit_tokens(manager, range(65)) == 64
    assert num_hit_tokens(manager, range(63)) == 32


def test_mask_can_be_switched_off() -> None:
    policy = Policy(reachable_block_mask=False)
    assert cached_in_window(64, full(32), window(8, 8), policy=policy) == list(range(8))


@pytest.mark.parametrize(
    ("interval", "num_tokens", "expected"),
    [
        # The last token is computed again. Of 150 tokens, 144 can be hit, and their last block is
        # 8.
        (None, 150, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        (64, 150, [3, 7, 8]),
        ("auto", 150, [8]),
        (0, 16, []),
    ],
)
def test_retention_interval(
    interval: int | Literal["auto"] | None, num_tokens: int, expected: list[int]
) -> None:
    policy = Policy(retention_interval=interval)
    assert cached_in_window(num_tokens, full(16), window(16, 16), policy=policy) == expected


def test_retention_keeps_as_many_blocks_as_the_window_needs() -> None:
    # 33 tokens before the next one are in three blocks.
    policy = Policy(retention_interval=96)
    kept = cached_in_window(200, full(16), window(16, 34), policy=policy)
    assert kept == [3, 4, 5, 9, 10, 11]


def test_retention_leaves_full_attention_alone() -> None:
    manager = make_manager(full(16), window(16, 16), policy=Policy(retention_interval=0))
    request = make_request(manager, "a", range(150))
    admit(manager, request)
    assert cached_positions(manager, request, group=0) == list(range(9))


def test_a_replay_hits_what_interval_zero_kept() -> None:
    manager = make_manager(full(16), window(16, 16), policy=Policy(retention_interval=0))
    serve(manager, "a", range(150))
    assert num_hit_tokens(manager, range(150)) == 144
    assert num_hit_tokens(manager, range(140)) == 0


def test_eagle_keeps_its_extra_block_at_the_replay_boundary() -> None:
    policy = Policy(retention_interval=0)
    groups = full(16), window(16, 16)
    # The replay hits 144, drops a block and resumes at 128. It needs block 7, and block 8 to drop.
    assert cached_in_window(150, *groups, policy=policy, use_eagle=True) == [7, 8]

    manager = make_manager(*groups, policy=policy, use_eagle=True)
    serve(manager, "a", range(150))
    assert num_hit_tokens(manager, range(150)) == 128


def test_an_interval_spans_several_blocks_of_a_finer_group() -> None:
    groups = full(16), window(8, 16)
    assert cached_in_window(80, *groups, policy=Policy(retention_interval=32)) == [2, 3, 6, 7]


def pinned_positions(manager: KVCacheManager) -> list[int]:
    blocks = manager.get_blocks("a").blocks[0]
    return [i for i, block in enumerate(blocks) if block.is_pinned]


def test_the_tier_is_off_by_default() -> None:
    manager = make_manager(window(4, 8), num_blocks=100)
    request = make_request(manager, "a", range(256))
    admit(manager, request, chunk=128)
    manager.free(request)
    assert manager.block_pool.get_num_pinned_blocks() == 0


def test_drops_while_decoding_flag_nothing() -> None:
    manager = make_manager(
        window(4, 8), policy=Policy(pin_min_drop_size=7, retention_interval=None)
    )
    request = make_request(manager, "a", range(64))
    admit(manager, request, chunk=32)  # drops blocks 0 to 5
    assert manager.get_block_ids("a") == ([0] * 6 + list(range(7, 17)),)
    decode(manager, request, [100])  # drops eight blocks, positions 6 to 13
    assert pinned_positions(manager) == [14, 15]
    decode(manager, request, range(101, 113))  # drops one block at a time
    assert cached_positions(manager, request) == [17, 18]
    assert pinned_positions(manager) == []
    assert pinned_ids(manager) == [15, 16]


def test_the_source_default_is_sixteen_blocks() -> None:
    for num_tokens, flagged in [(4 * 17, []), (4 * 18, [16, 17])]:
        policy = Policy(pin_min_drop_size=DEFAULT_PIN_MIN_DROP_SIZE)
        manager = make_manager(window(4, 8), policy=policy)
        request = make_request(manager, "a", range(num_tokens + 4))
        allocate(manager, request, num_tokens)
        allocate(manager, request, 4)
        assert pinned_positions(manager) == flagged


def test_full_attention_is_flagged_at_the_end() -> None:
    manager = make_manager(full(4), num_blocks=11, policy=Policy(pin_min_drop_size=16))
    request = make_request(manager, "a", range(10))
    admit(manager, request)
    assert pinned_positions(manager) == []
    manager.free(request)
    assert pinned_ids(manager) == [2, 1]
    assert (manager.block_pool.get_num_pinned_blocks(), manager.usage) == (2, 0.0)
    assert free_ids(manager) == [3, 4, 5, 6, 7, 8, 9, 10]


def test_popped_blocks_are_flagged_too() -> None:
    manager = make_manager(full(4), num_blocks=11, policy=Policy(pin_min_drop_size=16))
    request = make_request(manager, "a", range(10))
    admit(manager, request)
    manager.block_pool.free_blocks(reversed(manager.pop_blocks_for_free(request)))
    assert pinned_ids(manager) == [2, 1]


def test_the_recycle_order_holds_for_the_rest() -> None:
    policy = Policy(pin_min_drop_size=16, recycle_order="fifo")
    manager = make_manager(full(4), num_blocks=7, policy=policy)
    serve(manager, "a", range(10))
    assert pinned_ids(manager) == [2, 1]
    assert free_ids(manager) == [4, 5, 6, 3]


def test_a_demoted_block_leaves_the_cache_when_it_is_reused() -> None:
    manager = make_manager(
        full(4), num_blocks=7, policy=Policy(pin_min_drop_size=16), enable_kv_cache_events=True
    )
    prefix = serve(manager, "a", range(12))
    manager.take_events()
    manager.block_pool.get_new_blocks(4)  # three are free
    (removed,) = manager.take_events()
    assert isinstance(removed, BlockRemoved)
    assert removed.block_hashes == prefix.block_hashes[2:]
    assert pinned_ids(manager) == [2, 1]


def test_reset_empties_the_tier() -> None:
    manager = make_manager(full(4), num_blocks=11, policy=Policy(pin_min_drop_size=16))
    serve(manager, "a", range(8))
    assert manager.reset_prefix_cache()
    assert pinned_ids(manager) == []
    assert sorted(free_ids(manager)) == list(range(1, 11))
    manager.check_invariants()


def test_a_pinned_prefix_survives_traffic_that_fifo_forgets() -> None:
    hits = {}
    for name, min_drop_size in [("fifo", None), ("pinned", 4)]:
        policy = Policy(
            recycle_order="fifo", pin_min_drop_size=min_drop_size, retention_interval=None
        )
        manager = make_manager(window(4, 8), num_blocks=41, policy=policy)
        request = make_request(manager, "a", range(100))
        admit(manager, request, chunk=64)
        manager.free(request)
        for i in range(100):
            serve(manager, f"short {i}", [1000 + i])
        hits[name] = num_hit_tokens(manager, [*range(64), 9999])
    assert hits == {"fifo": 0, "pinned": 64}


@pytest.mark.parametrize("order", ["uncached-first", "fifo"])
@pytest.mark.parametrize("interval", [None, 0, 32])
@pytest.mark.parametrize("pin", [None, 1, 16])
def test_policies_combine(
    order: Literal["uncached-first", "fifo"], interval: int | None, pin: int | None
) -> None:
    policy = Policy(recycle_order=order, retention_interval=interval, pin_min_drop_size=pin)
    manager = make_manager(full(16), window(16, 32), policy=policy)
    for i in range(8):
        request = make_request(manager, str(i), range(i, i + 100))
        admit(manager, request, chunk=40)
        manager.check_invariants()
        manager.free(request)
        manager.check_invariants()
    assert manager.usage == 0.0
    assert num_hit_tokens(manager, range(7, 107)) == 96


def test_every_place_has_the_same_names_of_retention_policies() -> None:
    with pytest.raises(ConfigError) as error:
        Policy(retention="?")  # type: ignore[arg-type]
    names = re.findall(r"'(\w+)'", str(error.value))
    stub = (ROOT / "python/kvoxide/_core.pyi").read_text()
    literal = re.search(r"RetentionName: TypeAlias = Literal\[(.+)\]", stub)
    assert literal is not None
    assert re.findall(r'"(\w+)"', literal[1]) == names
    assert list(settings.RETENTIONS) == names
    for name in settings.RETENTIONS:
        assert Policy(retention=name).retention == name
        assert Settings.from_environ({settings.POLICY_VARIABLE: name}).retention == name
        if name != "standard":  # a replay names the mechanisms of this one instead
            assert parse_policy(name).policy.retention == name
