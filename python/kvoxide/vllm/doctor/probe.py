"""Finds out, in a process of its own, what vLLM does with its plugins in this environment."""

import json
import subprocess
import sys
from typing import Any, Final

PROCESS: Final = "kvoxide.vllm.doctor.probe_process"
MARK: Final = "kvoxide-probe: "
"""Marks the line of JSON among the other output of the process."""


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
    "primary_tier": [],
    "connector": [],
    "pool_access": None,
}
"""The result before anything was found out."""


def run_probe(scheduler: str | None = None, transfer: str | None = None) -> dict[str, Any]:
    """Probe in a new process.

    If they are given, look at a ``scheduler`` class (``module.Class``) and at the connectors of
    ``transfer``, the value of ``--kv-transfer-config``. ``error`` is set if that failed. ``vllm``
    is None without vLLM.
    """
    command = [sys.executable, "-m", PROCESS, scheduler or "", transfer or ""]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return found
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return {**NOTHING_FOUND, "error": last}
