"""Collects the messages that kvoxide logs, from its source and from their reference page."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.testing.paths import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "log-messages.md"
SOURCES: Final = ROOT / "python" / "kvoxide"
ANY: Final = "…"

_METHODS: Final = (
    {name: name.upper() for name in ("debug", "info", "warning", "error", "critical")}
    | {f"{name}_once": name.upper() for name in ("debug", "info", "warning")}
    | {"warn": "WARNING", "exception": "ERROR", "log": "LOG"}
)
_CONVERSION: Final = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]")
_NAMED_VALUE: Final = re.compile(r"<[a-z ]+>")
_ENTRY: Final = re.compile(
    r"^### .+\n\n```\n(?P<text>.+)\n```\n\n"
    r"- Level: (?P<level>[A-Z]+)\n"
    r"- Meaning: (?P<meaning>(?:.|\n  )+)\n"
    r"- Action: (?P<action>(?:.|\n  )+)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Message:
    """A message, with :data:`ANY` for each value in it."""

    text: str
    level: str


@dataclass(frozen=True)
class LogCall:
    """A call of a logger. ``message`` is None if its text is computed."""

    place: str
    message: Message | None


def log_calls() -> Iterator[LogCall]:
    """Yield each call of a logger's method in kvoxide."""
    for path, nodes in _nodes():
        for node in nodes:
            if isinstance(node, ast.Call) and _level_of(node) is not None:
                yield LogCall(f"{path.name}:{node.lineno}", _message(node))


def documented() -> list[Message]:
    """Return the messages of the page that have a level, a meaning and an action."""
    page = PAGE.read_text(encoding="utf-8")
    return [
        Message(_NAMED_VALUE.sub(ANY, entry["text"]), entry["level"])
        for entry in _ENTRY.finditer(page)
        if entry["meaning"].strip() and entry["action"].strip()
    ]


def texts_of_page() -> list[str]:
    """Return each text in a fenced block of the page, with or without the rest of its entry."""
    page = PAGE.read_text(encoding="utf-8")
    return [_NAMED_VALUE.sub(ANY, text) for text in re.findall(r"^```\n(.+)\n```$", page, re.M)]


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table after a heading of the page, without its own heading."""
    page = PAGE.read_text(encoding="utf-8")
    table = re.search(r"^\|.*\n\|[-|]+\n((?:\|.*\n?)+)", page[page.index(f"{heading}\n") :], re.M)
    assert table is not None
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()
    ]


def string_literals() -> set[str]:
    """Return the texts in kvoxide's Python files, with :data:`ANY` for each computed part."""
    texts = (_text_of(node) for _, nodes in _nodes() for node in nodes)
    return {text for text in texts if text is not None}


@cache
def _nodes() -> list[tuple[Path, list[ast.Call | ast.Constant | ast.JoinedStr]]]:
    """Return the calls and the strings in each Python file of kvoxide."""
    return [
        (path, [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, _READ)])
        for path in sorted(SOURCES.rglob("*.py"))
    ]


_READ: Final = (ast.Call, ast.Constant, ast.JoinedStr)


def pattern(text: str) -> re.Pattern[str]:
    """Return an expression for the lines of a message."""
    return re.compile(".*?".join(map(re.escape, text.split(ANY))), re.DOTALL)


def _level_of(call: ast.Call) -> str | None:
    return _METHODS.get(call.func.attr) if isinstance(call.func, ast.Attribute) else None


def _message(call: ast.Call) -> Message | None:
    text, level = call.args[0] if call.args else None, _level_of(call)
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str) or level is None:
        return None
    return Message(_CONVERSION.sub(ANY, text.value), level)


def _text_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = (_text_of(value) or ANY for value in node.values)
    return re.sub(f"{ANY}+", ANY, "".join(parts))
