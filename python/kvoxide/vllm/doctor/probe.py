"""What vLLM does with its plugins in this environment, found out in a process of its own."""

import json
import subprocess
import sys
from typing import Any, Final

PROCESS: Final = "kvoxide.vllm.doctor.probe_process"
MARK: Final = "kvoxide-probe: "
"""Begins the line of JSON among what the process prints."""


NOTHING_FOUND: Final[dict[str, Any]] = {
    "vllm": None,
    "error": None,
    "reasons": [],
    "release": None,
    "differences": [],
    "verified": None,
    "replaced": [],
    "scheduler": [],
    "host": [],
    "connector": [],
}
"""What is known before anything was found out."""


def run_probe(scheduler: str | None = None) -> dict[str, Any]:
    """Probe in a new process, with a ``scheduler`` class (``module.Class``) if one is given.
    ``error`` is set if that went wrong, ``vllm`` None without vLLM."""
    command = [sys.executable, "-m", PROCESS, *([scheduler] if scheduler else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return found
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return {**NOTHING_FOUND, "error": last}
