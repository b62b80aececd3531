"""Reads the tables of tests/bad_input.md as rows that can be run."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from tests.testing.paths import TESTS

DOCUMENT: Final = TESTS / "bad_input.md"

# The kind of rows that need vLLM.
IN_VLLM: Final = "vLLM"
# The rows of hints, which ``tests/vllm/inside_hints.py`` runs.
IN_HINTS: Final = "hint"

_SPAN: Final = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Row:
    """One line of a table. ``how`` is the title of the column that holds ``given``, and determines
    how it is run. ``answer`` is an exception class, an exit status, a field or a result. ``says``
    are parts of the message."""

    how: str
    what: str
    given: str
    answer: str
    says: tuple[str, ...]


@cache
def rows() -> list[Row]:
    """Return every row, in order."""
    found: list[Row] = []
    how: str | None = None
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            how = None
        elif how is None:
            how = cells[1]
        elif not line.startswith("|--"):
            found.append(_row(line, how, cells))
    return found


@cache
def setup(how: str) -> str:
    """Return the code that prepares the rows of a kind: the block named ``how`` in the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    (code,) = re.findall(rf"^```python {how}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(code)


def _row(line: str, how: str, cells: list[str]) -> Row:
    if len(cells) != 4:
        raise ValueError(f"not a row of four cells: {line}")
    what, given, answer, says = cells
    return Row(how, what, _only_span(given, line), _only_span(answer, line), _spans(says, line))


def _only_span(cell: str, line: str) -> str:
    (span,) = _spans(cell, line)
    return span


def _spans(cell: str, line: str) -> tuple[str, ...]:
    spans = tuple(_SPAN.findall(cell))
    if not spans:
        raise ValueError(f"a cell of code is empty: {line}")
    return spans
