"""The checks of a release, each in a process of its own, with what it printed in a file."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.testing.paths import ROOT
from tests.testing.vllm_environments import own_cache, paths_without_vllm
from tests.testing.vllm_releases import TRIAL_VARIABLE

from .install import Installed


@dataclass(frozen=True)
class Amounts:
    """How much of each check runs."""

    calls: int
    steps: int
    servers: int
    seconds: int
    seed: int


@dataclass(frozen=True)
class Check:
    """A command, what it shows, and whether it needs a release that kvoxide supports."""

    shows: str
    arguments: Callable[[Installed, Amounts], tuple[str, ...]]
    needs_support: bool = False
    is_pytest: bool = False


CHECKS: Final[Mapping[str, Check]] = {
    "verify": Check(
        "kvoxide verify: managers, schedulers and hashers, without a difference",
        lambda _, amounts: (
            *("kvoxide.lab.verify", "--seconds", str(amounts.seconds)),
            *("--seed", str(amounts.seed)),
        ),
    ),
    "sameness": Check(
        "random calls of managers are answered the same",
        lambda _, amounts: (
            *("tests.proof.sameness", "--against", "adapter", "--calls", str(amounts.calls)),
            *("--seed", str(amounts.seed), "--keep-going", "--families", "all"),
        ),
    ),
    "scheduler": Check(
        "vLLM's scheduler decides the same over both managers",
        lambda _, amounts: (
            *("tests.proof.scheduler", "--steps", str(amounts.steps)),
            *("--seed", str(amounts.seed), "--keep-going", "--families", "all"),
        ),
    ),
    "recordings": Check(
        "replays of recorded servers decide the same",
        lambda _, amounts: ("tests.proof.recorded", "--servers", str(amounts.servers)),
        needs_support=True,
    ),
    "adapter": Check(
        "the tests of the plugin and the adapter pass",
        lambda installed, _: ("tests/vllm", "-k", f"test_with and {installed.version}"),
        needs_support=True,
        is_pytest=True,
    ),
    "engine": Check(
        "vLLM's engine serves the same tokens with kvoxide as without",
        lambda installed, _: ("tests/engine", "-k", installed.version),
        needs_support=True,
        is_pytest=True,
    ),
    "suites": Check(
        "vLLM's own tests pass with kvoxide where they pass without",
        lambda _, __: ("tests.proof.conformance",),
        needs_support=True,
    ),
}
"""The checks by name, in the order in which they run."""


@dataclass(frozen=True)
class Outcome:
    """The result of a check."""

    passed: bool
    log: Path
    last_line: str


def run_check(name: str, installed: Installed, amounts: Amounts, folder: Path) -> Outcome:
    """Run a check, whose output goes to a file in ``folder``."""
    check = CHECKS[name]
    log = folder / f"{name}.log"
    pytest = ("pytest", "-q", "-rs", "--with-long") if check.is_pytest else ()
    command = [sys.executable, "-m", *pytest, *check.arguments(installed, amounts)]
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=_environment(installed, folder, is_pytest=check.is_pytest),
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
    return Outcome(done.returncode == 0, log, lines[-1] if lines else "")


def _environment(installed: Installed, folder: Path, *, is_pytest: bool) -> dict[str, str]:
    """Return variables of a process with the release. Tests find it by themselves: they keep the
    path of the newest release."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KVOXIDE_")}
    for name in ("KVOXIDE_CACHE", "KVOXIDE_BROWSER", "KVOXIDE_PROMETHEUS"):
        if value := os.environ.get(name):
            kept[name] = value
    kept["KVOXIDE_CERTIFICATES"] = str(folder)
    common = {"VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1", TRIAL_VARIABLE: installed.version}
    if is_pytest:
        return kept | common
    path = os.pathsep.join([str(installed.code), *paths_without_vllm()])
    return kept | common | own_cache(installed.version) | {"PYTHONPATH": path}
