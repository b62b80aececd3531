"""What vLLM does with its plugins in this environment, found out in a process of its own."""

import json
import subprocess
import sys
from typing import Any, Final

PROCESS: Final = "kvoxide.vllm.doctor.probe_process"
MARK: Final = "kvoxide-probe: "
"""Begins the line of JSON among what the process prints."""


def run_probe() -> dict[str, Any]:
    """Probe in a new process. ``error`` is set if that went wrong, ``vllm`` None without vLLM."""
    done = subprocess.run(
        [sys.executable, "-m", PROCESS], capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return found
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return {"vllm": None, "error": last, "reasons": [], "differences": []}
