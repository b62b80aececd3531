"""Every error in vLLM's host tier is seen by the comparison with kvoxide's."""

import pytest

from ..sameness import vllm_required  # noqa: F401  isort: skip

from ..sameness.host.playing import DifferenceFound, play_random
from ..sameness.host.scenario import random_scenario
from .host_tier import FAULTS

NUM_SCENARIOS = 80


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_seen(name: str) -> None:
    with FAULTS[name].planted():
        for seed in range(NUM_SCENARIOS):
            try:
                play_random(random_scenario(seed))
            except DifferenceFound:
                return
    pytest.fail("not seen")
