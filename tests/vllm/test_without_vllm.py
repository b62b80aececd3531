"""Where there is no vLLM, the tests that need it are skipped and the others run."""

import subprocess
import sys

from tests.testing.paths import ROOT
from tests.vllm.test_processes import without_vllm


def test_every_module_is_collected_or_skipped() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "--quiet",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=without_vllm(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
    assert "test_trace_hits" not in done.stdout.split("short test summary")[0]
