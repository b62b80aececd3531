"""Imports run down only in rooms that list their modules in the order of their layers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testing.paths import ROOT

ROOMS = ["rust/core/src/host", "rust/core/src/host/policy", "rust/python/src/offload"]


def modules(room: Path) -> list[str]:
    """Return the modules of a folder, the highest first."""
    return re.findall(r"^(?:pub(?:\(crate\))? )?mod (\w+);", (room / "mod.rs").read_text(), re.M)


def imports(source: str, starts: tuple[str, ...]) -> Iterator[str]:
    """Yield the first name after any of ``starts`` in each path that a file imports."""
    source = source.partition("#[cfg(test)]")[0]
    for use in re.findall(r"^\s*(?:pub(?:\([\w:]+\))? )?use ([^;]+);", source, re.M):
        for path in expanded(re.sub(r"\s+", "", use.replace(" as ", "@"))):
            for start in filter(path.startswith, starts):
                yield re.split("::|@", path.removeprefix(start))[0]


def expanded(use: str) -> Iterator[str]:
    """Yield the paths of ``a::{b, c::{d}}`` one by one."""
    head, brace, rest = use.partition("{")
    if not brace:
        yield use
        return
    depth, part = 0, ""
    for sign in rest[: rest.rindex("}")] + ",":
        depth += (sign == "{") - (sign == "}")
        if sign == "," and not depth:
            if part:
                yield from expanded(head + part)
            part = ""
        else:
            part += sign


def arrows_up(room: str) -> list[str]:
    """Return the imports of a folder's modules that are not declared below them."""
    folder, order = ROOT / room, modules(ROOT / room)
    in_crate = f"crate::{room.partition('src/')[2].replace('/', '::')}::"
    found = []
    for at, module in enumerate(order):
        # In the files of a folder, `super` is that folder.
        nested = [path for path in (folder / module).rglob("*.rs") if path.name != "mod.rs"]
        own = [folder / f"{module}.rs", folder / module / "mod.rs"]
        names = [
            name
            for paths, starts in ((own, ("super::", in_crate)), (nested, (in_crate,)))
            for path in filter(Path.exists, paths)
            for name in imports(path.read_text(), starts)
        ]
        below = {module, *order[at + 1 :]}
        found += [f"{room}/{module} imports {name}" for name in names if name not in below]
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_modules_import_only_those_below_them(room: str) -> None:
    assert arrows_up(room) == []


def test_modules_of_offloading_import_only_those_below_them() -> None:
    folder = ROOT / "python/kvoxide/vllm/offload"
    order = re.findall(r"^- ``(\w+)``", (folder / "__init__.py").read_text(), re.M)
    assert sorted(order) == sorted(path.stem for path in folder.glob("[!_]*.py"))
    for at, module in enumerate(order):
        source = (folder / f"{module}.py").read_text()
        imported = re.findall(r"^\s*from kvoxide\.vllm\.offload\.(\w+) import", source, re.M)
        assert set(imported) <= set(order[at + 1 :]), module
