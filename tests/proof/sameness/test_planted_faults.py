"""The harness finds nothing where nothing is, and each fault that is planted."""

import itertools
from collections.abc import Sequence

import pytest

from . import vllm_required
from .compare import Difference
from .driver import MakeDriver
from .runner import (
    DifferenceFound,
    Reproduction,
    Sides,
    play_random,
    play_recorded,
    recording_from_json,
)
from .scenarios import DEFAULT_FAMILIES, FAMILIES
from .shrink import shrink
from .sides import FAULTS, STATE_FAULTS, AdapterDriver, VllmDriver

SEEDS = range(60)
CALLS_PER_SCENARIO = 600
FEW_OPERATIONS = 40


AGAINST_ADAPTER = (
    "FifoQueue",
    "NoReachableMask",
    "LongHit",
    "NewestDuplicate",
    "NoRemovedEvents",
    "NoLoraId",
    "ReversedZeroing",
    "LateWatchers",
    "OtherError",
)


def find(sides: Sides, families: Sequence[str] = DEFAULT_FAMILIES) -> Reproduction:
    for family, seed in itertools.product(families, SEEDS):
        try:
            play_random(seed, sides, CALLS_PER_SCENARIO, families=(family,))
        except DifferenceFound as found:
            return found.reproduction
    raise AssertionError("the planted fault was not found")


@pytest.mark.parametrize("family", FAMILIES)
def test_vllm_is_the_same_as_itself(family: str) -> None:
    sides = Sides(VllmDriver, VllmDriver)
    num_calls = sum(
        play_random(seed, sides, CALLS_PER_SCENARIO, families=(family,)).num_calls for seed in SEEDS
    )
    assert num_calls >= len(SEEDS) * CALLS_PER_SCENARIO, vllm_required.RELEASE


@pytest.mark.parametrize("name", AGAINST_ADAPTER)
def test_planted_fault_is_found_against_the_adapter(name: str) -> None:
    """A fault of vLLM's side is a difference from kvoxide, as one of kvoxide's would be."""
    found = find(Sides(FAULTS[name], AdapterDriver))
    sides = Sides(VllmDriver, AdapterDriver)
    assert play_recorded(found.scenario, found.operations, sides) is None


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_found_shrunk_and_replayed(name: str) -> None:
    require_found_shrunk_and_replayed(FAULTS[name], DEFAULT_FAMILIES)


@pytest.mark.parametrize("name", STATE_FAULTS)
def test_planted_fault_of_states_is_found_shrunk_and_replayed(name: str) -> None:
    require_found_shrunk_and_replayed(STATE_FAULTS[name], ("states", "partial-hits"))


def require_found_shrunk_and_replayed(fault: MakeDriver, families: Sequence[str]) -> None:
    sides = Sides(VllmDriver, fault)
    shrunk = shrink(find(sides, families), sides)
    assert len(shrunk.operations) <= FEW_OPERATIONS
    scenario, operations = recording_from_json(shrunk.to_json())
    replayed = play_recorded(scenario, operations, sides)
    assert isinstance(replayed, Difference)
    assert (replayed.call, replayed.aspect) == (shrunk.difference.call, shrunk.difference.aspect)
    assert play_recorded(scenario, operations, Sides(VllmDriver, VllmDriver)) is None
