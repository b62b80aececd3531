"""Measures how fast the manager's other users are with kvoxide:
``python -m benches.neighbours``."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Final

from benches.neighbours.rows import Measured, print_rows

MODULES: Final = ("queue", "block_lookups", "tables", "events")


def main(arguments: list[str] | None = None) -> int:
    """Measure the named modules, or all, print the rows, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benches.neighbours", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="{" + ",".join(MODULES) + "}", default=[])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    given = parser.parse_args(arguments)
    unknown = set(given.modules) - set(MODULES)
    if unknown:
        parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
    rows = list(measure(given.modules or MODULES))
    print_rows(rows)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


def measure(modules: list[str] | tuple[str, ...]) -> Iterator[Measured]:
    """Yield every row of these modules."""
    for name in modules:
        yield from import_module(f"benches.neighbours.{name}").measure()


if __name__ == "__main__":
    sys.exit(main())
