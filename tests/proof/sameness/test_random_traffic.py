"""Tests that 40,000 random calls have no difference, for kvoxide's standalone manager and for its
adapter. Also tests the cases of the reachable-block mask."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from . import vllm_required  # isort: skip

from kvoxide.lab.verify.managers.driver import Driver
from kvoxide.lab.verify.managers.operations.requests import Admit, Submit
from kvoxide.lab.verify.managers.prompts import Segment
from kvoxide.lab.verify.managers.runner import (
    DifferenceFound,
    Reproduction,
    Sides,
    play,
    play_recorded,
    recording_from_json,
)
from kvoxide.lab.verify.managers.scenarios import (
    DEFAULT_FAMILIES,
    FAMILIES,
    Group,
    Scenario,
    random_scenario,
)
from kvoxide.lab.verify.managers.shrink import shrink
from kvoxide.lab.verify.managers.sides import AdapterDriver, VllmDriver
from kvoxide.lab.verify.managers.world import World

from .sides import AdaptiveAdapterDriver, AdaptiveKvoxideDriver, KvoxideDriver

SIDES = {
    "standalone": Sides(VllmDriver, KvoxideDriver),
    "adapter": Sides(VllmDriver, AdapterDriver),
}
of_each_side = pytest.mark.parametrize("sides", SIDES.values(), ids=SIDES)
FAMILIES_BESIDE_ATTENTION = tuple(name for name in FAMILIES if name not in DEFAULT_FAMILIES)
# tests/run.sh long sameness plays all families, with millions of calls.
SCENARIOS_PER_TEST = 3
SCENARIOS_OF_A_KIND = 3
CALLS_PER_SCENARIO = 1430
NUM_TESTS = 10
FOUND_BEFORE = sorted((Path(__file__).parent / "differences").glob("*.json"))


def unusual(*groups: Group, num_blocks: int = 60, max_model_len: int = 100) -> Scenario:
    block_sizes = [group.block_size for group in groups]
    return Scenario(
        groups=groups,
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        scheduler_block_size=math.lcm(*block_sizes),
        hash_block_size=math.gcd(*block_sizes) or 1,
        enable_events=True,
    )


UNUSUAL = {
    "no groups": replace(unusual(), enable_caching=False),
    "nothing to cache": unusual(Group("sliding_window_mla", 4, 8, prefix_cacheable=False)),
    "chunk below a block": unusual(Group("chunked_local_attention", 4, 3)),
    "chunk across blocks": unusual(
        Group("full_attention", 4), Group("chunked_local_attention", 4, 6)
    ),
    "hashes that end before the prompt": replace(
        unusual(Group("chunked_local_attention", 8, 24)),
        num_hash_lookahead_tokens=3,
        ready_made_hashes=True,
    ),
    "window past every request": unusual(
        Group("full_attention", 4), Group("sliding_window", 4, 1_000_000, 1_000_000)
    ),
    "smallest pool": unusual(
        Group("full_attention", 4), Group("sliding_window", 4, 5), num_blocks=3
    ),
    "deepseek-v4": unusual(
        Group("full_attention", 256),
        Group("sliding_window", 64, 128),
        Group("sliding_window", 4, 8),
        Group("sliding_window", 8, 128),
        num_blocks=2000,
        max_model_len=2600,
    ),
}


@pytest.mark.parametrize("part", range(NUM_TESTS))
@of_each_side
def test_same_under_random_traffic(sides: Sides, part: int) -> None:
    for seed in range(part * SCENARIOS_PER_TEST, (part + 1) * SCENARIOS_PER_TEST):
        require_same_under_traffic(random_scenario(seed), sides)


@pytest.mark.parametrize("family", FAMILIES_BESIDE_ATTENTION)
@of_each_side
def test_same_in_every_family(sides: Sides, family: str) -> None:
    for seed in range(SCENARIOS_OF_A_KIND):
        require_same_under_traffic(random_scenario(seed, (family,)), sides)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_drawn_pool_has_a_block_for_each_group_beside_the_null_block(family: str) -> None:
    drawn = [random_scenario(seed, (family,)) for seed in range(500)]
    assert [s.seed for s in drawn if s.num_blocks < 1 + len(s.groups)] == []


@pytest.mark.parametrize("name", UNUSUAL)
@of_each_side
def test_same_in_unusual_scenarios(sides: Sides, name: str) -> None:
    for seed in range(SCENARIOS_OF_A_KIND):
        require_same_under_traffic(replace(UNUSUAL[name], seed=seed), sides)


@pytest.mark.parametrize("family", FAMILIES)
def test_adaptive_retention_is_the_same_standalone_and_in_vllm(family: str) -> None:
    sides = Sides(AdaptiveAdapterDriver, AdaptiveKvoxideDriver)
    for seed in range(SCENARIOS_OF_A_KIND):
        require_same_under_traffic(random_scenario(seed, (family,)), sides)


def require_same_under_traffic(scenario: Scenario, sides: Sides) -> None:
    try:
        play(scenario, sides, CALLS_PER_SCENARIO)
    except DifferenceFound as found:
        text = shrink(found.reproduction, sides).to_json()
        pytest.fail(f"beside vLLM {vllm_required.RELEASE}, the two sides differ:\n{text}")


@pytest.mark.parametrize("path", FOUND_BEFORE, ids=lambda path: path.stem)
@of_each_side
def test_difference_found_before(sides: Sides, path: Path) -> None:
    scenario, operations = recording_from_json(path.read_text())
    difference = play_recorded(scenario, operations, sides)
    if difference is not None:
        pytest.fail(Reproduction(scenario, tuple(operations), difference).to_json())


def mask_scenario(window_block_size: int, window: int) -> Scenario:
    return Scenario(
        groups=(
            Group("full_attention", 32),
            Group("sliding_window", window_block_size, window),
        ),
        num_blocks=64,
        max_model_len=256,
        scheduler_block_size=32,
        hash_block_size=window_block_size,
    )


def cached_positions(driver: Driver, request_id: str, group: int) -> list[int]:
    hashes = driver.state().block_hashes
    table = driver.block_ids(request_id)[group]
    return [position for position, block_id in enumerate(table) if hashes[block_id] is not None]


@pytest.mark.parametrize(
    ("window_block_size", "window", "num_blocks", "cached"),
    [(8, 8, 8, [3, 7]), (16, 32, 7, [0, 1, 2, 3, 4, 5])],
)
def test_only_reachable_window_blocks_are_cached(
    window_block_size: int, window: int, num_blocks: int, cached: list[int]
) -> None:
    scenario = mask_scenario(window_block_size, window)
    sides = (VllmDriver(scenario), KvoxideDriver(scenario))
    world = World(scenario, *sides, calls_per_check=1)
    num_tokens = num_blocks * window_block_size
    Submit("r1", (Segment(1, 0, num_tokens),), output_stream=2).run(world)
    Admit("r1", num_tokens).run(world)
    for side in sides:
        assert len(side.block_ids("r1")[1]) == num_blocks
        assert cached_positions(side, "r1", group=1) == cached
