"""Times whole steps of vLLM's own scheduler, with vLLM's block manager and with kvoxide's:

    python -m benches.scheduler_steps LAYOUT [--tokens N] [--connector none|lru|arc] [--json FILE]

One long prompt is computed, hit, refused and loaded while short requests decode. The scheduler and
the offloading connector are the installed vLLM's; a simulated worker answers at once. Each side has
a process of its own, ``KVOXIDE=off`` and ``KVOXIDE=require``, and they take turns phase by phase.
Times are CPU time of the scheduler's thread. A phase that did not happen, or other scheduled tokens
on one side, is an error with status 1.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from kvoxide.lab.output.tables import Column, print_table

from benches.scheduler_steps.phases import PHASES, Figures, PhaseError, phases_of
from benches.scheduler_steps.sizes import Sizes, sizes_parser
from benches.scheduler_steps.turns import play_in_turns


@dataclass(frozen=True)
class Row:
    """A phase, with the figures of both sides."""

    phase: str
    compares: str
    stock: Figures
    kvoxide: Figures

    @property
    def ratio(self) -> float:
        """vLLM's time divided by kvoxide's. Above 1, kvoxide is faster."""
        return float(getattr(self.stock, self.compares) / getattr(self.kvoxide, self.compares))


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, and return the exit status."""
    parser = sizes_parser("python -m benches.scheduler_steps", __doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    given = parser.parse_args(arguments)
    sizes = Sizes.parsed(given)
    if problem := sizes.problem():
        parser.error(problem)
    rows: list[Row] = []
    error = None
    try:
        for name, steps in play_in_turns(sizes):
            figures = (Figures.of(side) for side in steps)
            rows.append(Row(name, PHASES[name].compares, *figures))
    except PhaseError as raised:
        error = str(raised)
    _print(sizes, rows)
    if given.json:
        given.json.write_text(json.dumps(_document(sizes, rows, error), indent=1) + "\n")
    if error:
        missing = [PHASES[name].text for name in phases_of(sizes.connector)[len(rows) :]]
        print(f"scheduler_steps: {error}\nnot measured: {'; '.join(missing)}", file=sys.stderr)
    return 1 if error else 0


def _document(sizes: Sizes, rows: list[Row], error: str | None) -> dict[str, object]:
    return {
        **asdict(sizes),
        "error": error,
        "rows": [{**asdict(row), "ratio": row.ratio} for row in rows],
    }


def _print(sizes: Sizes, rows: list[Row]) -> None:
    title = (
        f"{sizes.layout_name}, {sizes.tokens:,} tokens, connector {sizes.connector}: CPU"
        " milliseconds of a scheduler step, and vLLM's time / kvoxide's"
    )
    keys = [Column("step", [PHASES[row.phase].text for row in rows], is_name=True)]
    columns = [
        Column("steps", [str(row.stock.num_steps) for row in rows]),
        Column("vLLM median", [_ms(row.stock.median) for row in rows]),
        Column("longest", [_ms(row.stock.longest) for row in rows]),
        Column("kvoxide median", [_ms(row.kvoxide.median) for row in rows]),
        Column("longest", [_ms(row.kvoxide.longest) for row in rows]),
        Column("ratio", [f"{row.ratio:.1f}" for row in rows]),
        Column("of", [row.compares for row in rows]),
    ]
    print_table(title, keys, columns)


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1000:.3g}"


if __name__ == "__main__":
    sys.exit(main())
