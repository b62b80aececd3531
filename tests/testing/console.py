"""Runs the examples of pages: blocks of language ``console``, with commands and their output."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.testing.doc_pages import ANY, Fence, squeezed

_PRELUDE = """
set -euo pipefail
kvoxide() { "$PYTHON" -c 'from kvoxide.cli import main; main(prog_name="kvoxide")' "$@"; }
python3() { "$PYTHON" "$@"; }
"""


def run(example: Fence, folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return the output of the commands of an example, run in a folder, with single spaces."""
    wide = {"PYTHON": sys.executable, "COLUMNS": "300", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", _PRELUDE + example.script()],
        cwd=folder,
        env={**environment, **wide},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return shown(done.stdout)


def shown(output: str) -> str:
    """Return the lines of an output with single spaces, as pages show them."""
    return "".join(f"{squeezed(line)}\n" for line in output.splitlines())


def assert_shown(example: Fence, output: str) -> None:
    """Check that an example shows the output, but for its parts that are :data:`ANY`."""
    assert example.output().fullmatch(output), (
        f"{example.name}: {ANY} is any text, all other text has to be in\n{output}"
    )
