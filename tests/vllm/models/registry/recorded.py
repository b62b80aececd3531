"""Keeps folders and vLLM's answers to them in one compressed file, with a JSON object in each
line."""

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

FILE = Path(__file__).with_name("answers.jsonl.xz")
# Folders in the forms that users have: quantized, edited, cut and damaged ones.
EDITED = Path(__file__).with_name("edited.jsonl.xz")


def read(file: Path = FILE) -> list[Row]:
    """Return the rows: ``class``, ``table``, ``variant``, ``turn``, ``files``, ``answer``."""
    with lzma.open(file, "rt") if file.suffix == ".xz" else file.open() as lines:
        return [json.loads(line) for line in lines]


def key(row: Row) -> tuple[str, str, int]:
    """Return the question that a row answers: class, variant and turn."""
    return row["class"], row["variant"], row.get("turn", 0)


def write(rows: Iterable[Row]) -> None:
    """Write the rows, sorted so that equal rows give an equal file."""
    by_question = {key(row): row for row in rows}
    lines = [json.dumps(by_question[each], sort_keys=True) + "\n" for each in sorted(by_question)]
    with lzma.open(FILE, "wt", preset=9 | lzma.PRESET_EXTREME) as archive:
        archive.writelines(lines)
