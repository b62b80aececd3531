"""Compares the adapter, the host tier and the decisions of the scheduler with an older vLLM, by
the programs of the long run."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kvoxide.vllm.environment import recognise_host
from kvoxide.vllm.environment.releases import installed_version

from tests.proof.sameness.__main__ import main as sameness
from tests.proof.scheduler.__main__ import main as scheduler
from tests.testing.vllm_releases import INSTALLED

RELEASE = str(installed_version())
# tests/run.sh long sameness and scheduler make millions.
NUM_CALLS = 20_000 if RELEASE == INSTALLED else 10_000
NUM_HOST_CALLS = 20_000
NUM_STEPS = 1_000 if RELEASE == INSTALLED else 500
FOUND_BEFORE = sorted((Path(__file__).parent / "sameness" / "differences").glob("*.json"))
assert FOUND_BEFORE

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a program with arguments and returns its output. It fails if the
    program found a difference."""

    def run(main: Callable[[], int], *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["", *arguments])
        code, output = main(), capsys.readouterr().out
        assert code == 0, output
        return output

    return run


def test_same_under_random_traffic(run: Run) -> None:
    output = run(sameness, "--against", "adapter", "--calls", str(NUM_CALLS))
    assert f"vLLM {RELEASE} and adapter: " in output
    assert "\n0 differences" in output


@pytest.mark.parametrize("path", FOUND_BEFORE, ids=lambda path: path.stem)
def test_difference_found_before(path: Path, run: Run) -> None:
    output = run(sameness, "--against", "adapter", "--replay", str(path))
    assert output.count(f"no difference with vLLM {RELEASE}") == 1


@pytest.mark.skipif(
    not recognise_host().release.has_host_tier, reason="kvoxide has no host tier for it"
)
def test_same_host_tier(run: Run) -> None:
    output = run(sameness, "--against", "host", "--calls", str(NUM_HOST_CALLS))
    assert f"vLLM {RELEASE} and its host tier: " in output
    assert "\n0 differences" in output


def test_every_step_of_the_scheduler_is_the_same(run: Run) -> None:
    output = run(scheduler, "--steps", str(NUM_STEPS))
    assert f"vLLM {RELEASE}'s scheduler" in output
    assert " 0 differences" in output
