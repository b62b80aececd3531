"""The speed at the last renewal of the baseline: ``benches/baseline.json``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PATH: Final = Path(__file__).with_name("baseline.json")
HOW_TO_RENEW: Final = "python -m benches.gate --renew"

Values = dict[str, dict[str, float]]
"""Maps a layout and an operation to a number."""


@dataclass(frozen=True)
class Section:
    """Numbers of one kind, and the tools that they hold for."""

    tools: Mapping[str, str]
    values: Values

    def difference(self, tools: Mapping[str, str]) -> str | None:
        """Return why these numbers cannot be compared under ``tools``, or None if they can."""
        changed = [
            f"{name} {self.tools.get(name)}, here it is {value}"
            for name, value in tools.items()
            if self.tools.get(name) != value
        ]
        return f"the baseline was made with {'; '.join(changed)}" if changed else None


def read(section: str) -> Section:
    """Return a section of the baseline. It is empty if the file does not have it."""
    record = _read_all().get(section, {"tools": {}, "values": {}})
    return Section(record["tools"], record["values"])


def write(section: str, content: Section) -> None:
    """Replace a section of the baseline and leave the others alone."""
    record = _read_all()
    record[section] = {"tools": dict(content.tools), "values": content.values}
    PATH.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _read_all() -> dict[str, Any]:
    if not PATH.exists():
        return {}
    record: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return record
