"""Counts the instructions of the core's hot paths with callgrind. They are the same in every
run."""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from .baseline import Values

ADAPTIVE: Final = "-adaptive"
"""The end of a layout's name with adaptive retention."""
EVERY_TAIL: Final = "-every-tail"
"""The end of a layout's name with the tail at every aligned boundary cached. A name without an end
has vLLM's default policy."""
SESSIONS: Final = "-sessions"
"""The end of a layout's name with adaptive retention, in which every request names a session. One
layout is enough: where requests have more groups, sessions add a smaller share."""
ROOT: Final = Path(__file__).parent.parent
_CALLGRIND: Final = (
    "valgrind",
    "--tool=callgrind",
    "--quiet",
    "--collect-atstart=no",
    "--toggle-collect=*hot_paths*counted*",
    "--dump-after=hot_paths::prepared*",
)
_SUMMARY: Final = re.compile(r"^(?:summary|totals): *([0-9]+)", re.MULTILINE)


def missing_tool() -> str | None:
    """Return a tool that is missing and without which nothing can be counted, or None."""
    return next((tool for tool in ("cargo", "valgrind") if shutil.which(tool) is None), None)


def tools() -> dict[str, str]:
    """Return what the counts depend on in addition to the code."""
    described = _output(["rustc", "-vV"])
    fields = dict(line.split(": ", 1) for line in described.splitlines() if ": " in line)
    return {"rustc": fields["release"], "host": fields["host"]}


def count() -> Values:
    """Return the instructions by layout and operation."""
    program = _build()
    operations: dict[str, list[str]] = {}
    for line in _output([str(program)]).splitlines():
        layout, operation = line.split()
        operations.setdefault(layout, []).append(operation)
    return {layout: _count(program, layout, names) for layout, names in operations.items()}


def _build() -> Path:
    # The build of the Python module uses these features of the core, so the core is compiled once.
    packages = ("--package", "kvoxide-core", "--package", "kvoxide-python")
    command = ["cargo", "build", "--locked", "--release", "--quiet", *packages]
    messages = _output([*command, "--example", "hot_paths", "--message-format=json"])
    for message in map(json.loads, messages.splitlines()):
        if message.get("executable") and message["target"]["name"] == "hot_paths":
            return Path(message["executable"])
    raise RuntimeError("cargo built no program hot_paths")


def _count(program: Path, layout: str, operations: list[str]) -> dict[str, float]:
    """Count all operations of a layout in one process. Valgrind takes longer to start than most of
    them."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "counts"
        _output([*_CALLGRIND, f"--callgrind-out-file={out}", str(program), layout, *operations])
        # The file without a number has the end of the program.
        counts = [_total(Path(f"{out}.{at}")) for at in range(1, len(operations) + 1)]
    for operation, count in zip(operations, counts, strict=True):
        if count == 0:
            raise RuntimeError(f"callgrind counted nothing for {layout} {operation}")
    return dict(zip(operations, counts, strict=True))


def _total(path: Path) -> int:
    found = _SUMMARY.search(path.read_text(encoding="utf-8"))
    return int(found[1]) if found else 0


def _output(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with exit code {done.returncode}")
    return done.stdout
