"""kvoxide has two parts, the code of servers and the laboratory. Servers import no laboratory.

``tests/vllm/test_processes.py`` checks the same in processes that construct vLLM's manager.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from kvoxide.cli import COMMANDS, SECTIONS, main

from tests.testing.paths import ROOT

SOURCES: Final = ROOT / "python"
LABORATORY: Final = "kvoxide.lab"
COMMAND_LINE: Final = ("kvoxide.cli", "kvoxide.server_commands")
"""Modules that import both parts, and that neither part imports."""

LAYERS: Final = (
    "bench",
    "plan",
    "why",
    "verify",
    "replay",
    "model_groups",
    "model",
    "output",
    "options",
)
"""The laboratory from top to bottom."""


def modules() -> dict[str, Path]:
    """Return all modules of kvoxide."""
    return {name_of(path): path for path in (SOURCES / "kvoxide").rglob("*.py")}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def named_in(source: str, package: str) -> Iterator[str]:
    """Yield every module that code could import: also inside of functions, relative to its package,
    and by a name in a string."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            parent = package.split(".")
            parts = parent[: len(parent) - node.level + 1] if node.level else []
            module = ".".join([*parts, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def is_in(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")


def names(module: str, path: Path) -> list[str]:
    is_package = path.name == "__init__.py"
    return list(named_in(path.read_text(), module if is_package else module.rpartition(".")[0]))


def of_servers() -> dict[str, Path]:
    outside = (LABORATORY, *COMMAND_LINE)
    return {
        module: path
        for module, path in modules().items()
        if not any(is_in(module, other) for other in outside)
    }


def test_code_of_servers_names_no_module_of_the_laboratory() -> None:
    searched = of_servers()
    assert {"kvoxide", "kvoxide.vllm.plugin", "kvoxide.vllm.doctor"} <= set(searched)
    assert [
        (module, name)
        for module, path in searched.items()
        for name in names(module, path)
        if is_in(name, LABORATORY)
    ] == []


def test_only_the_command_line_imports_both_parts() -> None:
    for module, path in modules().items():
        if module not in COMMAND_LINE:
            found = [name for name in names(module, path) for it in COMMAND_LINE if is_in(name, it)]
            assert found == [], module


def test_parts_of_the_laboratory_import_only_those_below_them() -> None:
    laboratory = {name: path for name, path in modules().items() if is_in(name, LABORATORY)}
    parts = {name.split(".")[2] for name in laboratory if name != LABORATORY}
    assert parts == set(LAYERS)
    for module, path in laboratory.items():
        if module == LABORATORY:
            continue
        below = LAYERS[LAYERS.index(module.split(".")[2]) :]
        imported = {name.split(".")[2] for name in names(module, path) if is_in(name, LABORATORY)}
        assert imported <= set(below), module


@pytest.mark.parametrize(
    "source",
    [
        "from kvoxide.lab.model import read_model",
        "from kvoxide import lab",
        "import kvoxide.lab.replay",
        "def late():\n    from kvoxide.lab.model import read_model",
        "from ...lab import model",
        "subprocess.run([sys.executable, '-m', 'kvoxide.lab.verify'])",
    ],
)
def test_an_import_of_the_laboratory_is_found(source: str) -> None:
    assert any(is_in(name, LABORATORY) for name in named_in(source, "kvoxide.vllm.doctor"))


@pytest.mark.parametrize("source", ["from kvoxide import label", "'see kvoxide.lab'", "import lab"])
def test_other_names_are_no_import_of_the_laboratory(source: str) -> None:
    assert not any(is_in(name, LABORATORY) for name in named_in(source, "kvoxide.vllm"))


def test_plugin_and_doctor_import_no_laboratory() -> None:
    code = (
        "import sys, kvoxide, kvoxide.vllm.doctor, kvoxide.vllm.plugin;"
        "parts = ('kvoxide.lab', 'kvoxide.cli', 'kvoxide.server_commands', 'click', 'rich');"
        "print([name for name in sys.modules if name.startswith(parts)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr


def test_help_lists_every_command_in_the_section_of_its_part() -> None:
    help_text = CliRunner().invoke(main, ["--help"]).output
    for title, commands in SECTIONS.items():
        section = help_text.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(commands)
    servers, laboratory = (set(commands.values()) for commands in SECTIONS.values())
    assert servers == {"kvoxide.server_commands"}
    assert all(is_in(module, LABORATORY) for module in laboratory)
    assert len(COMMANDS) == sum(map(len, SECTIONS.values())) == 9


@pytest.mark.parametrize("command", ["bench", "verify", "formats"])
def test_a_command_imports_no_model_reader_that_it_does_not_need(command: str) -> None:
    code = (
        f"import sys; sys.argv[1:] = [{command!r}, '--help']\n"
        "from kvoxide.cli import main\n"
        "try: main()\n"
        "finally: print([name for name in sys.modules if name.startswith('kvoxide.lab.model')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr
