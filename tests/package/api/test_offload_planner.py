"""Look-ups, loads and stores of a connector, each in one call."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kvoxide import HostRequest, HostTier
from kvoxide._core_vllm import OffloadPlanner, VllmGroupKeys, VllmRequestKeys

SIZE = 16


def group(window: int | None = None, **fields: Any) -> Any:
    plain = {
        "group_idx": 0,
        "tokens_per_block": SIZE,
        "tokens_per_chunk": SIZE,
        "sliding_window_size_in_chunks": window,
        "load_window_tokens": None,
        "is_eagle_group": False,
        "is_state": False,
    }
    return SimpleNamespace(**plain | fields)


def planner(*groups: Any, tier: HostTier | None = None, **settings: Any) -> OffloadPlanner:
    windows = [at for at, of in enumerate(groups) if of.sliding_window_size_in_chunks]
    order = [at for at in range(len(groups)) if at not in windows] + windows
    return OffloadPlanner(groups, order, settings.pop("blocks_per_chunk", 1), tier=tier, **settings)


def key(number: int, group_id: int = 0) -> bytes:
    return bytes([number]) * 32 + group_id.to_bytes(4, "big")


def listed(numbers: range, group_id: int = 0) -> list[bytes]:
    return [key(number, group_id) for number in numbers]


def in_rust(num_hashes: int, *sizes: tuple[int, int, int]) -> list[VllmGroupKeys]:
    keys = VllmRequestKeys(sizes or [(0, 1, SIZE)])
    keys.extend([bytes([number]) * 32 for number in range(num_hashes)])
    return keys.groups()


def tier_with(*keys: bytes, num_chunks: int = 20) -> HostTier:
    tier = HostTier(num_chunks)
    tier.prepare_store(HostRequest(), list(keys))
    tier.complete_store(list(keys))
    return tier


def block(block_id: int, is_hashed: bool = False) -> Any:
    return SimpleNamespace(
        block_id=block_id, is_null=block_id == 0, block_hash=b"" if is_hashed else None
    )


def blocks(*tables: Sequence[Any]) -> Any:
    return SimpleNamespace(blocks=tables)


@pytest.mark.parametrize("are_in_rust", [True, False])
def test_a_hit_ends_with_the_first_missing_chunk(are_in_rust: bool) -> None:
    plan = planner(group(), tier=tier_with(*listed(range(3)), key(4)))
    keys: list[Any] = in_rust(6) if are_in_rust else [listed(range(6))]
    assert plan.look_up(keys, 0, 96) == (48, [3])
    assert plan.look_up(keys, SIZE, 96) == (32, [3])
    assert plan.look_up(keys, 3 * SIZE, 96) == (0, [3])
    assert plan.look_up(keys, 4 * SIZE, 96) == (16, [5])
    assert plan.look_up(keys, 0, 96, max_new=20) == (20, [2])
    assert plan.look_up(keys, 0, 96, max_load=20) == (16, [1])
    assert plan.look_up(keys, 0, 96, max_load=15) == (0, [0])


def test_a_pending_or_loading_chunk_is_asked_for_later() -> None:
    tier = tier_with(key(0))
    tier.prepare_store(HostRequest(), [key(1)])
    plan = planner(group(), tier=tier)
    keys = in_rust(3)
    assert plan.look_up(keys, 0, 48)[0] is None
    tier.complete_store([key(1)])
    assert plan.look_up(keys, 0, 48)[0] == 32
    tier.set_loading([key(1)], is_loading=True)
    assert plan.look_up(keys, 0, 48)[0] is None
    assert plan.look_up(keys, 0, 48, max_new=16)[0] == 16


def test_a_window_shortens_the_hit_and_needs_its_last_chunks_alone() -> None:
    full = listed(range(6))
    window = [key(number, 1) for number in (2, 3, 5)]
    plan = planner(group(), group(2, group_idx=1), tier=tier_with(*full, *window))
    keys: list[Any] = [full, [key(number, 1) for number in range(6)]]
    assert plan.look_up(keys, 0, 97) == (64, [6, 0])
    assert plan.look_up(keys, 0, 65) == (64, [4, 0])
    assert plan.look_up(keys, 0, 64) == (63, [4, 0]), "the last token is computed"
    assert plan.look_up(keys, 48, 97)[0] == 16, "the window reaches back before the local hit"


def test_the_last_chunk_of_an_eagle_group_is_taken_off() -> None:
    plan = planner(group(is_eagle_group=True), tier=tier_with(*listed(range(3))))
    assert plan.look_up(in_rust(6), 0, 96) == (32, [3])
    assert plan.look_up(in_rust(3), 0, 48) == (32, [3])
    assert plan.look_up(in_rust(6), 32, 96)[0] == 0


def test_fewer_keys_than_chunks_are_an_error() -> None:
    with pytest.raises(AssertionError, match="fewer keys than the request has chunks"):
        planner(group(), tier=HostTier(2)).look_up([listed(range(2))], 0, 48)


@pytest.mark.parametrize("is_sync", [True, False])
def test_a_load_fills_blocks_without_hashes(is_sync: bool) -> None:
    tier = tier_with(*listed(range(4)))
    plan = planner(group(), tier=tier)
    table = [block(7, is_hashed=True), block(8, is_hashed=is_sync), block(9), block(5)]
    request = HostRequest()
    made = plan.load(in_rust(4), blocks(table), 16, 64, is_sync, request, True)
    assert made is not None
    assert (made.group_sizes, made.block_indices, made.num_chunks) == ([3], [1], [4])
    assert made.block_ids.tolist() == [8, 9, 5]
    assert list(made.keys) == listed(range(1, 4))
    assert [(*part, list(keys)) for *part, keys in made.parts] == [(0, 16, 64, listed(range(1, 4)))]
    assert made.chunk_ids is not None
    assert made.chunk_ids.tolist() == [1, 2, 3]
    assert tier.num_loading_keys == (0 if is_sync else 3)
    plan.end(made.keys, False)
    assert (tier.num_loading_keys, tier.num_evictable_chunks) == (0, 4)
    with pytest.raises(AssertionError, match="has no load to complete"):
        plan.end(made.keys, False)


def test_a_load_of_listed_keys_is_left_to_the_manager() -> None:
    made = planner(group(), group(1, group_idx=1, is_state=True)).load(
        [listed(range(4)), listed(range(4), 1)],
        blocks([block(7), block(8), block(9)], [block(0), block(0), block(6)]),
        0,
        48,
        False,
    )
    assert made is not None
    assert made.chunk_ids is None
    assert made.keys == [*listed(range(3)), key(2, 1)]
    assert made.parts == [(0, 0, 48, listed(range(3))), (1, 0, 48, [key(2, 1)])]
    assert (made.group_sizes, made.block_indices) == ([3, 1], [0, 2])
    assert made.block_ids.tolist() == [7, 8, 9, 6]


def test_a_load_into_a_window_leaves_out_blocks_with_hashes() -> None:
    full = [block(number) for number in range(1, 7)]
    window = [block(0), block(7), block(8, is_hashed=True), block(9), block(10), block(11, True)]
    keys = in_rust(6, (0, 1, SIZE), (1, 1, SIZE))
    made = planner(group(), group(5, group_idx=1)).load(keys, blocks(full, window), 0, 92, False)
    assert made is not None
    assert (made.group_sizes, made.block_indices, made.num_chunks) == ([6, 3], [0, 1], [6, 6])
    assert made.block_ids.tolist() == [*range(1, 7), 7, 9, 10]
    wanted = listed(range(6)), [key(1, 1)], [key(3, 1), key(4, 1)]
    assert list(made.keys) == [each for part in wanted for each in part]
    assert [(*part, list(keys)) for *part, keys in made.parts] == [
        (0, 0, 92, wanted[0]),
        (1, 16, 32, wanted[1]),
        (1, 48, 80, wanted[2]),
    ]


@pytest.mark.parametrize(
    ("num_computed", "num_cached", "num_keys"), [(8, 48, 4), (0, 65, 4), (0, 48, 2)]
)
def test_what_vllm_refuses_to_load_is_not_planned(
    num_computed: int, num_cached: int, num_keys: int
) -> None:
    """A hit inside a block, a table that is too short, too few keys."""
    tier = tier_with(*listed(range(4)))
    table = [block(number) for number in range(1, 5)]
    made = planner(group(), tier=tier).load(
        in_rust(num_keys), blocks(table), num_computed, num_cached, False, HostRequest(), True
    )
    assert made is None
    assert (tier.num_loading_keys, tier.num_evictable_chunks) == (0, 4)


def test_a_load_of_absent_keys_changes_nothing() -> None:
    tier = tier_with(*listed(range(2)))
    table = [block(number) for number in range(1, 4)]
    with pytest.raises(AssertionError, match="has no ready chunk"):
        planner(group(), tier=tier).load(
            in_rust(3), blocks(table), 0, 48, False, HostRequest(), True
        )
    assert (tier.num_loading_keys, tier.num_evictable_chunks) == (0, 2)


def offer(keys: VllmGroupKeys, block_ids: list[int], start: int, end: int, mask: Any = None) -> Any:
    return SimpleNamespace(keys=keys, block_ids=block_ids, start=start, end=end, mask=mask)


def test_a_store_takes_chunks_with_blocks_that_the_tier_lacks() -> None:
    tier = tier_with(key(1))
    plan = planner(group(), group(group_idx=1), tier=tier)
    first, second = in_rust(5, (0, 1, SIZE), (3, 2, 2 * SIZE))
    made = plan.store(
        HostRequest(),
        [
            offer(first, [7, 8, 0, 6, 9], 1, 5, [True, True, True, False]),
            offer(second, [4, 5], 0, 2),
        ],
    )
    assert made is not None
    assert list(made.keys) == [key(3), key(1, 3), key(3, 3)]
    assert made.chunk_ids.tolist() == [1, 2, 3]
    assert (made.block_ids, made.block_indices) == ([[6], [4, 5]], [3, 0])
    assert tier.lookup(key(3)) == "hit_pending"
    plan.end(made.keys, True)
    assert tier.lookup(key(3)) == "hit"
    again = plan.store(HostRequest(), [offer(first, [7, 8, 0, 6, 9], 3, 4)])
    assert again is not None
    assert len(again.keys) == 0


def test_a_store_without_room_is_none_and_a_failed_one_leaves_nothing() -> None:
    tier = tier_with(num_chunks=2)
    plan = planner(group(), tier=tier)
    (keys,) = in_rust(3)
    assert plan.store(HostRequest(), [offer(keys, [1, 2, 3], 0, 3)]) is None
    made = plan.store(HostRequest(), [offer(keys, [1, 2, 3], 0, 2)])
    assert made is not None
    plan.end(made.keys, True, False)
    assert tier.num_free_chunks == 2


def test_wrong_plans_are_refused() -> None:
    with pytest.raises(ValueError, match="need at least one token"):
        planner(group(tokens_per_chunk=0))
    with pytest.raises(ValueError, match="cannot look up group 3; there are 1 groups"):
        OffloadPlanner([group()], [3], 1)
    with pytest.raises(ValueError, match="the connector's manager must be kvoxide's"):
        planner(group()).look_up([[]], 0, 0)
    with pytest.raises(ValueError, match="keys of 2 groups were given; the connector has 1 groups"):
        planner(group(), tier=HostTier(1)).look_up([[], []], 0, 0)
    with pytest.raises(ValueError, match="needs at least one group to store"):
        planner(tier=HostTier(1)).store(HostRequest(), [])
    (keys,) = in_rust(1)
    tier = HostTier(2)
    with pytest.raises(AttributeError, match="block_ids"):
        planner(group(), tier=tier).store(HostRequest(), [SimpleNamespace(keys=keys)])
    assert tier.num_free_chunks == 2
