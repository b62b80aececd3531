"""``python -m tests.proof.retention``: compares ``adaptive`` with the other policies."""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import kvoxide
from kvoxide.lab.replay.input import DEFAULT_POLICY

from . import sweep
from .arguments import names_of, numbers
from .cells import NEIGHBOURS, PRESETS, SHARES, Half, Loop, Traffics, chosen
from .judge import POLICIES, Cell, Judge
from .known import KnownResults, Played, default_path
from .playing import ADAPTIVE, WITH_ENDS
from .verdict import (
    comparison_lines,
    ends_lines,
    latency_lines,
    lost_lines,
    mean_lines,
    policy_lines,
    rival_lines,
    summary_lines,
)
from .workloads import TraceFile, workloads


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.sweep:
        arguments.policies, arguments.loops = sweep.POLICIES, [Loop.CLOSED.value]
    before = _read(arguments.before) if arguments.before else None
    started = time.monotonic()
    cells = list(_judge(arguments).cells(_traffics(arguments), arguments.jobs))
    if arguments.output:
        _write(arguments.output, cells)
    shown = [sweep.sweep_lines(cells)] if arguments.sweep else _verdict(cells)
    if before is not None:
        shown.append(comparison_lines(before, cells))
    for lines in shown:
        print("\n".join(lines) + "\n")
    if arguments.plot and cells:
        sweep.draw(cells, arguments.plot)
    print(f"{len(cells)} cells in {time.monotonic() - started:.0f} s")
    return 0 if cells else 1


def _judge(arguments: argparse.Namespace) -> Judge:
    return Judge(
        known=KnownResults(arguments.known, Played, forget=arguments.forget),
        presets=arguments.presets,
        policies=arguments.policies,
        shares=arguments.shares,
        loops=[Loop(name) for name in arguments.loops],
        multiples=NEIGHBOURS if arguments.neighbours else (1.0,),
        sweeps=arguments.sweep,
    )


def _traffics(arguments: argparse.Namespace) -> list[Traffics]:
    halves = [half for half in Half if arguments.half in (half.value, "all")]
    traffics = [Traffics(TraceFile(path), seed=1) for path in arguments.traces]
    return traffics or list(chosen(halves, arguments.workloads, arguments.seeds))


def _verdict(cells: list[Cell]) -> list[Iterator[str]]:
    tables = (
        summary_lines,
        mean_lines,
        ends_lines,
        rival_lines,
        policy_lines,
        latency_lines,
        lost_lines,
    )
    return [table(cells) for table in tables]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.retention", description=__doc__)
    add = parser.add_argument
    halves, loops = [half.value for half in Half], [loop.value for loop in Loop]
    add("--half", choices=[*halves, "all"], default=Half.TUNING.value)
    add("--workloads", type=names_of(tuple(workloads())), default=[], metavar="NAME,...")
    traces = "traces with 16 tokens an id in place of workloads"
    add("--traces", type=Path, nargs="+", default=[], metavar="FILE", help=traces)
    add("--presets", type=names_of(PRESETS), default=list(PRESETS), metavar="NAME,...")
    add("--policies", type=_policies, default=list(POLICIES), metavar="POLICY,...")
    add("--seeds", type=numbers, default=[], metavar="N,...", help="by default the half's")
    shares = "pools, by the share in %% of the hits without evictions that the bound has there"
    add("--shares", type=numbers, default=list(SHARES), metavar="N,...", help=shares)
    add("--loops", type=names_of(tuple(loops)), default=loops, metavar="LOOP,...")
    add("--neighbours", action="store_true", help="add pools of 0.9 and 1.1 times the size")
    add("--sweep", action="store_true", help="many pool sizes, adaptive and the default")
    add("--plot", type=Path, metavar="FILE", help="draw the curves of a sweep")
    add("--jobs", type=int, default=1, metavar="N", help="workloads at a time")
    add("--output", type=Path, metavar="FILE", help="write the cells as JSON")
    add("--before", type=Path, metavar="FILE", help="compare with the cells of such a file")
    known = "what was played before"
    add("--known", type=Path, default=default_path(), metavar="FILE", help=known)
    add("--forget", action="store_true", help="play all of it again")
    return parser


def _policies(text: str) -> list[str]:
    """Return the named policies, vLLM's default and ``adaptive``."""
    return list(dict.fromkeys([DEFAULT_POLICY, *text.split(","), ADAPTIVE, WITH_ENDS]))


def _write(path: Path, cells: list[Cell]) -> None:
    record = {"kvoxide": kvoxide.__version__, "cells": [asdict(cell) for cell in cells]}
    path.write_text(json.dumps(record, indent=1) + "\n")


def _read(path: Path) -> list[Cell]:
    return [Cell(**cell) for cell in json.loads(path.read_text())["cells"]]


if __name__ == "__main__":
    sys.exit(main())
