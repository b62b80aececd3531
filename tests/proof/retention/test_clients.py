"""Tests how much a client with a bad habit costs the others under ``adaptive``."""

from statistics import fmean

import pytest

from .client_costs import BLOCKS, Pair
from .clients import HABITS, Habit

# The most points of hit share that the others may lose.
MOST = 1.0
# One seed costs or gains some points by chance, so the long test takes the mean of several.
RUNS = [
    pytest.param([1], ["llama", "gemma-3", "qwen3-next"], id="quick"),
    pytest.param([2, 3, 4, 5, 6], list(BLOCKS), id="long", marks=pytest.mark.long),
]


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize(("seeds", "presets"), RUNS)
def test_a_bad_client_costs_the_others_no_more_than_a_polite_one(
    habit: Habit, seeds: list[int], presets: list[str]
) -> None:
    pairs = [Pair.of(habit, seed) for seed in seeds]
    for preset in presets:
        costs = [fmean(pair.costs(preset)) for pair in pairs]
        assert fmean(costs) <= MOST, (preset, costs)
