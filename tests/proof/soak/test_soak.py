"""Tests with short soaks, including whether they would notice a leak."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of
from tests.testing.vllm_releases import INSTALLED, NEWEST

from .memory import Report, Soak

# A hash alone has 32 bytes.
MOST_BYTES_PER_REQUEST = 24
ENGINE_REQUESTS = 2_000
# After so few requests, an engine has not used all of its buffers.
ENGINE_GROWTH = 0.03


def run_soak(release: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return preloaded.run(["-m", *arguments], environment_of(release, folder / "plugins"))


def test_requests_leave_nothing_behind_and_a_planted_leak_is_seen(tmp_path: Path) -> None:
    done = run_soak(NEWEST, tmp_path, "tests.proof.soak.inside_planted")
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failures"] == []
    assert found["clean"] < MOST_BYTES_PER_REQUEST
    assert found["leaking"] > 4 * MOST_BYTES_PER_REQUEST


def test_an_engine_does_everything_that_the_soak_is_there_for(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    options = [f"--requests={ENGINE_REQUESTS}", f"--every={ENGINE_REQUESTS // 2}"]
    options += ["--steps-between-resets=20", f"--json={file}"]
    done = run_soak(INSTALLED, tmp_path, "tests.proof.soak", "engine", *options)
    assert file.exists(), done.stdout + done.stderr[-4_000:]
    figures = json.loads(file.read_text())
    assert [failure for failure in figures["failures"] if "grew" not in failure] == []
    assert figures["growth"] < ENGINE_GROWTH
    assert figures["versions"]["manager"].startswith("kvoxide.vllm.")


def soak_of(*resident: int) -> Soak:
    soak = Soak("made up", 0, {})
    soak.reports = [Report((at + 1) * 1000, rss, 0.0) for at, rss in enumerate(resident)]
    return soak


@pytest.mark.parametrize(
    ("last", "num_failures"), [(900_000, 0), (1_009_000, 0), (1_011_000, 1), (2_000_000, 1)]
)
def test_more_than_one_per_cent_of_growth_fails(last: int, num_failures: int) -> None:
    soak = soak_of(1_000_000, 1_200_000, last)
    assert len(soak.failures([])) == num_failures


def test_what_never_happened_fails_and_so_does_what_must_not() -> None:
    soak = soak_of(1_000_000, 1_000_000)
    soak.counters.update(done=3, lost=1)
    assert soak.failures(["done"]) == []
    assert soak.failures(["done", "other"], ["lost"]) == ["other: never happened", "lost: 1"]


def test_the_figures_are_written_and_the_status_tells(tmp_path: Path) -> None:
    soak = soak_of(1_000_000, 1_000_000)
    soak.counters["done"] += 3
    file = tmp_path / "figures.json"
    assert soak.finish([], file) == 0
    assert soak.finish(["too much"], file) == 1
    figures = json.loads(file.read_text())
    assert figures["failures"] == ["too much"]
    assert figures["counters"] == {"done": 3}
    assert [report["rss"] for report in figures["reports"]] == [1_000_000, 1_000_000]
