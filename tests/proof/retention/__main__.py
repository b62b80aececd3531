"""``python -m tests.proof.retention``: how ``adaptive`` fares against the other policies."""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import kvoxide

from .cells import PERCENTS, PRESETS, Half, chosen
from .judge import POLICIES, Cell, Judge
from .known import KnownResults, default_path
from .verdict import comparison_lines, lost_lines, summary_lines
from .workloads import workloads


def main() -> int:
    arguments = _parser().parse_args()
    before = _read(arguments.before) if arguments.before else None
    started = time.monotonic()
    halves = [half for half in Half if arguments.half in (half.value, "all")]
    traffics = list(chosen(halves, arguments.workloads, arguments.seeds))
    judge = Judge(
        known=KnownResults(arguments.known, forget=arguments.forget),
        presets=arguments.presets,
        policies=arguments.policies,
        percents=arguments.percents,
        has_bound=arguments.bound,
    )
    cells = list(judge.cells(traffics, arguments.jobs))
    if arguments.output:
        _write(arguments.output, cells)
    for lines in (summary_lines(cells), lost_lines(cells)):
        print("\n".join(lines) + "\n")
    if before is not None:
        print("\n".join(comparison_lines(before, cells)) + "\n")
    print(f"{len(cells)} cells in {time.monotonic() - started:.0f} s")
    return 0 if cells else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.retention", description=__doc__)
    add = parser.add_argument
    add("--half", choices=[*(half.value for half in Half), "all"], default=Half.TUNING.value)
    add("--workloads", type=_names(tuple(workloads())), default=[], metavar="NAME,...")
    add("--presets", type=_names(PRESETS), default=list(PRESETS), metavar="NAME,...")
    add("--policies", type=lambda text: text.split(","), default=list(POLICIES), metavar="P,...")
    add("--seeds", type=_numbers, default=[], metavar="N,...", help="by default the half's")
    add("--percents", type=_numbers, default=list(PERCENTS), metavar="N,...", help="pool sizes")
    add("--bound", action="store_true", help="what a policy that knows the future could hit")
    add("--jobs", type=int, default=1, metavar="N", help="runs at a time")
    add("--output", type=Path, metavar="FILE", help="write the cells as JSON")
    add("--before", type=Path, metavar="FILE", help="compare with the cells of such a file")
    add(
        "--known", type=Path, default=default_path(), metavar="FILE", help="other policies' results"
    )
    add("--forget", action="store_true", help="play the other policies again, too")
    return parser


def _names(allowed: tuple[str, ...]) -> "Names":
    return Names(allowed)


class Names:
    """Reads names with commas."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._allowed = allowed

    def __call__(self, text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in self._allowed:
                message = f"{name!r} is none of {', '.join(self._allowed)}"
                raise argparse.ArgumentTypeError(message)
        return names


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _write(path: Path, cells: list[Cell]) -> None:
    record = {"kvoxide": kvoxide.__version__, "cells": [asdict(cell) for cell in cells]}
    path.write_text(json.dumps(record, indent=1) + "\n")


def _read(path: Path) -> list[Cell]:
    return [Cell(**cell) for cell in json.loads(path.read_text())["cells"]]


if __name__ == "__main__":
    sys.exit(main())
