"""``python -m tests.proof.tiers``: compares policies of GPU and CPU memory together."""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import kvoxide

from tests.proof.retention.arguments import count, names_of, numbers
from tests.proof.retention.cells import PRESETS, Half, chosen
from tests.proof.retention.known import KnownResults, build_digest, default_path

from .judge import Cell, Judge
from .playing import PlayedTiers
from .sizes import SIZES, sizes
from .variants import ADAPTIVE_ARC, ADAPTIVE_LRU, BOTH_ADAPTIVE, VARIANTS, WRITE_THROUGH, Variant
from .verdict import (
    best_lines,
    clock_lines,
    comparison_lines,
    judged_lines,
    lost_lines,
    mean_lines,
    transfer_lines,
)
from .workloads import COPIES, all_workloads

_PRESETS: Final = ("llama", "gpt-oss", "qwen3-next", "gemma-3", "deepseek-v4")
_ALWAYS: Final = (WRITE_THROUGH, ADAPTIVE_LRU, ADAPTIVE_ARC)  # others are compared with these
_NAMES: Final = {variant.name: variant for variant in VARIANTS}


def main() -> int:
    arguments = _parser().parse_args()
    started = time.monotonic()
    halves = [half for half in Half if arguments.half in (half.value, "all")]
    traffics = list(chosen(halves, arguments.workloads, arguments.seeds, all_workloads()))
    asked = {_NAMES[name] for name in arguments.variants} | set(_ALWAYS)
    variants = [variant for variant in VARIANTS if variant in asked and _is_known(variant)]
    judge = Judge(
        known=KnownResults(arguments.known, PlayedTiers, forget=arguments.forget),
        presets=arguments.presets,
        gpu_build=arguments.gpu_build,
        variants=variants,
        sizes=arguments.sizes,
        copies=arguments.copies,
    )
    before = _read(arguments.before) if arguments.before else None
    cells = list(judge.cells(traffics, arguments.jobs))
    if arguments.output:
        _write(arguments.output, cells)
    if cells:
        judged = _NAMES[arguments.judged]
        for lines in _tables(cells, judged, before, has_clock=arguments.clock):
            print("\n".join(lines) + "\n")
    print(f"{len(cells)} cells in {time.monotonic() - started:.0f} s, build {build_digest()}")
    return 0 if cells else 1


def _is_known(variant: Variant) -> bool:
    missing = variant.missing()
    if missing is not None:
        print(missing, file=sys.stderr)
    return missing is None


def _tables(
    cells: list[Cell], judged: Variant, before: list[Cell] | None, *, has_clock: bool
) -> Iterator[Iterator[str]]:
    yield mean_lines(cells)
    if judged.name in cells[0].runs:
        yield judged_lines(cells, judged)
        yield lost_lines(cells, judged)
        if before is not None:
            yield comparison_lines(before, cells, judged)
    yield best_lines(cells)
    yield transfer_lines(cells)
    if has_clock:
        yield clock_lines(cells)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.tiers", description=__doc__)
    add = parser.add_argument
    add("--half", choices=[*(half.value for half in Half), "all"], default=Half.TUNING.value)
    add("--workloads", type=names_of(tuple(all_workloads())), default=[], metavar="NAME,...")
    add("--presets", type=names_of(PRESETS), default=list(_PRESETS), metavar="NAME,...")
    add("--seeds", type=numbers, default=[], metavar="N,...", help="by default the half's")
    size = "GPU pools in %% of the working set, and CPU memory in pools; by default 3:4,10:1"
    add("--sizes", type=sizes, default=list(SIZES), metavar="PERCENT:TIMES,...", help=size)
    copies = "how many times each workload is on the server; %(default)s by default"
    add("--copies", type=count, default=COPIES, metavar="N", help=copies)
    names = names_of(tuple(_NAMES))
    variants = "all by default"
    add("--variants", type=names, default=list(_NAMES), metavar="NAME,...", help=variants)
    judged = "the variant that is compared with all others; %(default)s by default"
    add("--judged", choices=list(_NAMES), default=BOTH_ADAPTIVE.name, metavar="NAME", help=judged)
    add("--clock", action="store_true", help="print times to the first token")
    add("--jobs", type=count, default=1, metavar="N", help="workloads at a time")
    add("--output", type=Path, metavar="FILE", help="write the cells as JSON")
    before = "compare the judged variant with the cells of such a file"
    add("--before", type=Path, metavar="FILE", help=before)
    known = "what was played before"
    add("--known", type=Path, default=default_path("tiers"), metavar="FILE", help=known)
    add("--forget", action="store_true", help="play all of it again")
    gpu_build = "use results of adaptive on the GPU from this build; by default the installed one"
    add("--gpu-build", default=build_digest(), metavar="BUILD", help=gpu_build)
    return parser


def _write(path: Path, cells: list[Cell]) -> None:
    record = {"kvoxide": kvoxide.__version__, "cells": [asdict(cell) for cell in cells]}
    path.write_text(json.dumps(record, indent=1) + "\n")


def _read(path: Path) -> list[Cell]:
    return [Cell.of(record) for record in json.loads(path.read_text())["cells"]]


if __name__ == "__main__":
    sys.exit(main())
