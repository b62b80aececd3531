"""Tests how much a client with a bad habit costs the others under ``adaptive``."""

from statistics import fmean

import pytest

from .client_costs import BLOCKS, Pair
from .clients import HABITS, Habit

# The most points of hit share that the others may lose.
MOST = 1.0


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_bad_client_costs_the_others_no_more_than_a_polite_one(habit: Habit, seed: int) -> None:
    pair = Pair.of(habit, seed)
    for preset in BLOCKS:
        costs = pair.costs(preset)
        assert fmean(costs) <= MOST, (preset, costs)
