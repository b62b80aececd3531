"""vLLM's scheduler decides the same over kvoxide's manager as over vLLM's own, and would be seen
not to."""

import argparse
from pathlib import Path

import pytest

from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of

from ..sameness import vllm_required
from ..sameness.scenarios import FAMILIES
from . import side
from .__main__ import run
from .comparison import Difference
from .planted import CachesLate, FreesForwards, ShortHits

STEPS_PER_PLAN = 200
PLANS_PER_FAMILY = 6
OLDER_RELEASE = "0.32.0"
NUM_STEPS = 3_000


def arguments(family: str, against: str = "adapter") -> argparse.Namespace:
    return argparse.Namespace(families=(family,), against=against)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_step_is_the_same(family: str) -> None:
    num_steps = sum(
        run(seed, arguments(family), STEPS_PER_PLAN)["step"] for seed in range(PLANS_PER_FAMILY)
    )
    assert num_steps > STEPS_PER_PLAN * PLANS_PER_FAMILY / 2, vllm_required.RELEASE


def test_every_step_is_the_same_in_an_older_release(tmp_path: Path) -> None:
    command = ["-m", "tests.proof.scheduler", "--steps", str(NUM_STEPS)]
    done = preloaded.run(command, environment_of(OLDER_RELEASE, tmp_path))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert f"vLLM {OLDER_RELEASE}'s scheduler" in done.stdout
    assert "0 differences" in done.stdout


@pytest.mark.parametrize("fault", [ShortHits, CachesLate, FreesForwards])
def test_planted_fault_is_found(fault: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(side.MANAGERS, "planted", fault)
    with pytest.raises(Difference, match="differs"):
        run_plans(100)


def run_plans(count: int) -> None:
    for seed in range(count):
        run(seed, arguments("attention", "planted"), STEPS_PER_PLAN)
