"""Measures the hit share over many pool sizes, to see whether a larger pool ever hits less."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from kvoxide.lab.replay.input import DEFAULT_POLICY

from .judge import Cell
from .playing import ADAPTIVE

POLICIES: Final = (DEFAULT_POLICY, ADAPTIVE)
FALL: Final = 0.5  # points below a smaller pool from which on a size is named


def falls(cells: Sequence[Cell], policy: str) -> list[tuple[Cell, Cell, float]]:
    """Return each cell that falls, in the order of sizes, as three values: the smaller cell that
    hits most, the cell itself, and the points between them."""
    found = []
    best = cells[0]
    for cell in cells:
        fall = best.shares[policy] - cell.shares[policy]
        if fall > FALL:
            found.append((best, cell, fall))
        if fall < 0:
            best = cell
    return found


def curves(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return the cells of each workload, seed and preset."""
    return [list(curve) for _, curve in groupby(cells, key=_curve)]


def sweep_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown for each curve, and where it falls."""
    num_falls = dict.fromkeys(POLICIES, 0)
    for curve in curves(cells):
        name, seed, preset = _curve(curve[0])
        yield f"{name}, seed {seed}, {preset}\n"
        yield f"| blocks | {' | '.join(POLICIES)} |"
        yield "|---|" + "---|" * len(POLICIES)
        for cell in curve:
            shares = " | ".join(f"{cell.shares[policy]:.2f}" for policy in POLICIES)
            yield f"| {cell.blocks:,} | {shares} |"
        yield ""
        for policy in POLICIES:
            for best, cell, fall in falls(curve, policy):
                num_falls[policy] += 1
                yield f"{policy} falls by {fall:.2f} from {best.blocks:,} to {cell.blocks:,} blocks"
        yield ""
    counts = ", ".join(f"{count} of {policy}" for policy, count in num_falls.items())
    yield f"falls by more than {FALL}: {counts}; {len(cells)} sizes"


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Draw one panel for each curve."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = curves(cells)
    num_columns = min(4, len(drawn))
    num_rows = -(-len(drawn) // num_columns)
    size = (4 * num_columns, 3 * num_rows)
    figure, axes = pyplot.subplots(num_rows, num_columns, figsize=size, squeeze=False)
    for axis in axes.flat[len(drawn) :]:
        axis.set_visible(False)
    for axis, curve in zip(axes.flat, drawn, strict=False):
        name, seed, preset = _curve(curve[0])
        for policy in POLICIES:
            shares = [cell.shares[policy] for cell in curve]
            axis.semilogx([cell.blocks for cell in curve], shares, marker=".", label=policy)
        axis.set_title(f"{name}, {seed}, {preset}", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("blocks")
    for axis in axes[:, 0]:
        axis.set_ylabel("hit share in %")
    axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _curve(cell: Cell) -> tuple[str, int, str]:
    return cell.workload, cell.seed, cell.preset
