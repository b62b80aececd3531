"""Packages in ``kvoxide.lab.replay`` are rooms: they import downwards, and through doors only."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.testing.paths import ROOT

SOURCES = ROOT / "python"
PACKAGE = "kvoxide.lab.replay"
FOLDER = SOURCES / "kvoxide" / "lab" / "replay"
# From the top to the bottom, each with the rooms that it imports from.
ARROWS = {
    "cli": {"page", "results", "run", "setup", "input"},
    "page": {"results", "run", "input"},
    "results": {"run", "setup", "serving", "input"},
    "run": {"setup", "serving", "input"},
    "setup": {"serving", "input"},
    "serving": {"input"},
    "input": set[str](),
}
ROOMS = tuple(ARROWS)
# Modules that import from a room, counted once for each room.
MOST_IMPORTERS = 59
MOST_LINES = 450


class Import(NamedTuple):
    """One name that a file imports from a module."""

    path: Path
    module: str
    name: str


def imports_of(source: str, path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                package = path.relative_to(SOURCES).parts[: -node.level]
                module = ".".join((*package, *filter(None, [node.module])))
            for alias in node.names:
                yield Import(path, module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, alias.name, "")


def room_of(path: Path) -> str | None:
    """Return the room that a file is in; None for a file outside of all rooms."""
    if not path.is_relative_to(FOLDER):
        return None
    first = path.relative_to(FOLDER).parts[0]
    return first if first in ROOMS else None


def imported_room(found: Import) -> str | None:
    """Return the room that a name comes from; None for a name of other code."""
    parts = f"{found.module}.{found.name}".removeprefix(f"{PACKAGE}.").split(".")
    is_ours = f"{found.module}.".startswith(f"{PACKAGE}.")
    return parts[0] if is_ours and parts[0] in ROOMS else None


@functools.cache
def crossings() -> list[tuple[str, Import]]:
    """Return the imports of the package that go from one room, or from code outside, to a room."""
    found = (each for path in SOURCES.rglob("*.py") for each in imports_of(path.read_text(), path))
    pairs = [(room, each) for each in found if (room := imported_room(each)) is not None]
    return [(room, each) for room, each in pairs if room_of(each.path) != room]


def goes_past_the_door(found: Import) -> bool:
    """Return whether an import names a module inside of a room."""
    room = imported_room(found)
    if room is None or room_of(found.path) == room:
        return False
    inside = FOLDER / room / f"{found.name}.py"
    is_door = found.module == f"{PACKAGE}.{room}"
    return not is_door or inside.exists() or inside.with_suffix("").is_dir()


def test_the_package_consists_of_the_rooms() -> None:
    assert {path.name for path in FOLDER.iterdir() if (path / "__init__.py").exists()} == set(ROOMS)
    assert [path.name for path in FOLDER.glob("*.py")] == ["__init__.py"]


def test_rooms_import_from_the_rooms_that_are_listed() -> None:
    found: dict[str, set[str]] = {room: set() for room in ROOMS}
    for room, each in crossings():
        if (importer := room_of(each.path)) is not None:
            found[importer].add(room)
    assert found == ARROWS


def test_rooms_import_only_downwards() -> None:
    for room, targets in ARROWS.items():
        above = {other for other in targets if ROOMS.index(other) <= ROOMS.index(room)}
        assert not above, f"{room} imports from {above}"


def test_few_modules_import_from_another_room() -> None:
    inside = {(each.path, room) for room, each in crossings() if room_of(each.path) is not None}
    assert sum(map(len, ARROWS.values())) <= 25
    assert len(inside) <= MOST_IMPORTERS


def test_no_code_imports_past_a_door() -> None:
    assert not [each for _, each in crossings() if goes_past_the_door(each)]


@pytest.mark.parametrize("room", ROOMS)
def test_a_door_exports_the_names_that_other_code_imports(room: str) -> None:
    imported = {each.name for target, each in crossings() if target == room}
    tree = ast.parse((FOLDER / room / "__init__.py").read_text())
    assert ast.get_docstring(tree), "the door says what the room does"
    exported: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            exported = set(ast.literal_eval(node.value))
    assert exported == imported


def test_modules_are_short() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in FOLDER.rglob("*.py")}
    assert not {path for path, count in lines.items() if count > MOST_LINES}


@pytest.mark.parametrize(
    ("source", "is_past"),
    [
        ("from kvoxide.lab.replay.input import read_trace", False),
        ("from kvoxide.lab.replay.input.reader import read_trace", True),
        ("from kvoxide.lab.replay.input import reader", True),
        ("from kvoxide.lab.replay.input import recording", True),
        ("import kvoxide.lab.replay.input.reader", True),
        ("from ..input.reader import read_trace", True),
        ("from ..input import read_trace", False),
        ("def late():\n    from kvoxide.lab.replay.input.reader import read_trace", True),
        ("from kvoxide.lab.replay.run.bound import clairvoyant_outcomes", False),
        ("from kvoxide.lab.output.tables import Table", False),
    ],
)
def test_an_import_past_a_door_is_found(source: str, is_past: bool) -> None:
    (found,) = imports_of(source, FOLDER / "run" / "comparison.py")
    assert goes_past_the_door(found) is is_past
