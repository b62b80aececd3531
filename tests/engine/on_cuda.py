"""Serves jobs of the engine tests on CUDA, on kvoxide's manager and on vLLM's, and compares them.

Run ``python -m tests.engine.on_cuda FOLDER JOB...`` in an environment with vLLM and kvoxide.
The jobs are named in ``jobs.py``, such as ``gemma-async``. Each job runs one after the other in
three processes, two of them with vLLM's manager. A difference between these two is not a manager's
fault.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.testing.paths import ROOT

from .jobs import JOBS, Job
from .models import write_models
from .outcome import Outcome, first_difference

# FlashAttention has no float32. Compiled kernels of vLLM that a machine may lack are not used.
OPTIONS = {
    "dtype": "bfloat16",
    "gpu_memory_utilization": 0.05,
    "compilation_config": {"custom_ops": ["none"], "mode": 0},
}


def main() -> None:
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    models = folder / "models"
    models.mkdir(parents=True)
    write_models(models)
    differences = [difference for name in names if (difference := compared(name, folder))]
    sys.exit("\n".join(differences) or None)


def compared(name: str, folder: Path) -> str | None:
    """Return where kvoxide's run of a job first differs from vLLM's."""
    off, again, require = (
        served(JOBS[name], mode, folder, f"{name}-{at}")
        for at, mode in enumerate(("off", "off", "require"))
    )
    steps = len(off.played[0].steps)
    print(f"{name}: {steps} steps, {require.manager}, {off.played[0].counters}", flush=True)
    if (unsteady := first_difference(off.played, again.played)) is not None:
        return f"{name}: vLLM differs from itself: {unsteady}"
    difference = first_difference(off.played, require.played)
    return None if difference is None else f"{name}: {difference}"


def served(job: Job, mode: str, folder: Path, name: str) -> Outcome:
    outcome = folder / f"{name}.json"
    described = job.to_json()
    described["engine"] |= OPTIONS
    environment = os.environ | {
        "KVOXIDE": mode,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
    }
    with (folder / f"{name}.log").open("w") as log:
        subprocess.run(
            [sys.executable, "-m", "tests.engine.run_engine", str(outcome)],
            input=json.dumps(described),
            text=True,
            cwd=folder / "models",
            env=environment,
            stdout=log,
            stderr=log,
            check=True,
        )
    return Outcome.from_json(json.loads(outcome.read_text()))


if __name__ == "__main__":
    main()
