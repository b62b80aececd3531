"""Tests that vLLM's scheduler decides the same over kvoxide's manager as over vLLM's own."""

from collections import Counter

import pytest
from kvoxide.lab.verify.managers.scenarios import FAMILIES

from ..sameness import vllm_required
from .__main__ import run

STEPS_PER_PLAN = 200
# tests/run.sh long scheduler makes millions of steps.
PLANS_PER_FAMILY = 4


@pytest.mark.parametrize("family", FAMILIES)
def test_every_step_is_the_same(family: str) -> None:
    seen: Counter[str] = Counter()
    for seed in range(PLANS_PER_FAMILY):
        run(seed, (family,), STEPS_PER_PLAN, seen)
    assert seen["step"] > STEPS_PER_PLAN * PLANS_PER_FAMILY / 2, vllm_required.RELEASE
