"""Programs in ``examples``: the documented command of each, and the output that it should print."""

import ast
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final

from tests.testing.paths import ROOT

EXAMPLES: Final = ROOT / "examples"


def docstring(name: str) -> str:
    return ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))) or ""


def documented_command(name: str) -> list[str]:
    """Return the arguments after the program's name in the first command that runs it."""
    text = docstring(name).replace("\\\n", " ")
    command = re.search(rf"^ +python examples/{name}(.*)$", text, re.MULTILINE)
    assert command, f"the docstring of {name} has no command"
    return shlex.split(command[1])


def documented_variables(name: str) -> dict[str, str]:
    """Return the variables that the documented commands export."""
    (exported,) = re.findall(r"^ +export (.+)$", docstring(name), re.MULTILINE)
    return dict(re.findall(r"(\w+)=(\S+)", exported))


def documented_output(name: str) -> str:
    _, _, output = docstring(name).partition("\nIt prints::\n\n")
    assert output, f"the docstring of {name} has no output"
    return textwrap.dedent(output) + "\n"


def run_example(name: str, arguments: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Return what a program prints when it runs in ``folder``."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def with_path(environment: dict[str, str], *folders: Path) -> dict[str, str]:
    """Return the environment with more folders in front of its path. The last is this Python's, for
    the command ``kvoxide``."""
    path = [*map(str, folders), str(Path(sys.executable).parent), environment.get("PATH", "")]
    return environment | {"PATH": os.pathsep.join(path)}
