"""vLLM's scheduler decides the same over kvoxide's manager as over vLLM's own."""

from pathlib import Path

import pytest
from kvoxide.vllm.verify.managers.scenarios import FAMILIES

from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of

from ..sameness import vllm_required
from .__main__ import run

STEPS_PER_PLAN = 200
PLANS_PER_FAMILY = 6
OLDER_RELEASE = "0.32.0"
NUM_STEPS = 3_000


@pytest.mark.parametrize("family", FAMILIES)
def test_every_step_is_the_same(family: str) -> None:
    num_steps = sum(
        run(seed, (family,), STEPS_PER_PLAN)["step"] for seed in range(PLANS_PER_FAMILY)
    )
    assert num_steps > STEPS_PER_PLAN * PLANS_PER_FAMILY / 2, vllm_required.RELEASE


def test_every_step_is_the_same_in_an_older_release(tmp_path: Path) -> None:
    command = ["-m", "tests.proof.scheduler", "--steps", str(NUM_STEPS)]
    done = preloaded.run(command, environment_of(OLDER_RELEASE, tmp_path))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert f"vLLM {OLDER_RELEASE}'s scheduler" in done.stdout
    assert "0 differences" in done.stdout
