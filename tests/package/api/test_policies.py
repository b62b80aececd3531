"""Which blocks are kept: recycle order, reachable-block mask, retention interval."""

from typing import Any, Literal

import pytest
from kvoxide import Policy

from tests.testing.small import (
    admit,
    cached_positions,
    free_ids,
    full,
    make_manager,
    make_request,
    num_hit_tokens,
    serve,
    window,
)


def cached_in_window(num_tokens: int, *groups: Any, **options: Any) -> list[int]:
    """Positions cached in the second group after a prompt of so many tokens."""
    manager = make_manager(*groups, num_blocks=100, **options)
    request = make_request(manager, "a", range(num_tokens))
    admit(manager, request)
    return cached_positions(manager, request, group=1)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("uncached-first", [3, 4, 5, 6, 7, 2, 1]),
        ("fifo", [4, 5, 6, 7, 3, 2, 1]),
    ],
)
def test_recycle_order(order: Literal["uncached-first", "fifo"], expected: list[int]) -> None:
    manager = make_manager(full(4), num_blocks=8, policy=Policy(recycle_order=order))
    serve(manager, "a", range(10))
    assert free_ids(manager) == expected


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


def test_mask_keeps_blocks_0_to_5_of_seven() -> None:
    # Each of them can be in a window that ends at 32, 64 or 96; block 6 ends at 112.
    assert cached_in_window(112, full(32), window(16, 32)) == [0, 1, 2, 3, 4, 5]


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
        # The last token is recomputed: of 150 tokens, 144 can be hit, whose last block is 8.
        (None, 150, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        (0, 150, [8]),
        (64, 150, [3, 7, 8]),
        (48, 150, [2, 5, 8]),
        ("auto", 150, [8]),
        # The same for a prompt that ends at a block: asked again, it hits 144.
        (0, 160, [8]),
        (64, 160, [3, 7, 8]),
        (0, 16, []),
    ],
)
def test_retention_interval(
    interval: int | Literal["auto"] | None, num_tokens: int, expected: list[int]
) -> None:
    policy = Policy(retention_interval=interval)
    assert cached_in_window(num_tokens, full(16), window(16, 16), policy=policy) == expected


def test_retention_keeps_as_many_blocks_as_the_window_needs() -> None:
    # 33 tokens before the next one lie in three blocks.
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
    # The replay hits 144, drops a block and resumes at 128: it needs block 7, and 8 to drop.
    assert cached_in_window(150, *groups, policy=policy, use_eagle=True) == [7, 8]

    manager = make_manager(*groups, policy=policy, use_eagle=True)
    serve(manager, "a", range(150))
    assert num_hit_tokens(manager, range(150)) == 128


def test_an_interval_spans_several_blocks_of_a_finer_group() -> None:
    groups = full(16), window(8, 16)
    assert cached_in_window(80, *groups, policy=Policy(retention_interval=32)) == [2, 3, 6, 7]


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
