"""Summarizes the cells for ``adaptive``: tables, and a comparison of two results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kvoxide.lab.replay.input import DEFAULT_POLICY, UNLIMITED

from .judge import ADAPTIVE, Cell

LOSS: Final = 0.3  # points of hit share from which on a cell counts as lost
AMPLE: Final = 1.0  # points below unlimited within which the default needs no policy
CHANGE: Final = 0.1  # points from which on a cell counts as changed
_NO_RIVALS: Final = (ADAPTIVE, UNLIMITED, "bound")


def gain(cell: Cell) -> float:
    """Return the points of hit share by which ``adaptive`` is above the best other policy."""
    return cell.shares[ADAPTIVE] - best_other(cell)


def best_other(cell: Cell) -> float:
    return max(share for policy, share in cell.shares.items() if policy not in _NO_RIVALS)


def is_lost(cell: Cell) -> bool:
    return gain(cell) < -LOSS


def is_ample(cell: Cell) -> bool:
    """Return whether the default hits nearly all that can be hit."""
    return cell.shares[UNLIMITED] - cell.shares[DEFAULT_POLICY] <= AMPLE


@dataclass(frozen=True)
class Summary:
    """A summary of some cells in one line."""

    num_cells: int
    num_lost: int
    worst: float
    mean: float
    mean_above_default: float

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> "Summary":
        gains = [gain(cell) for cell in cells]
        above = [cell.shares[ADAPTIVE] - cell.shares[DEFAULT_POLICY] for cell in cells]
        return cls(
            num_cells=len(cells),
            num_lost=sum(map(is_lost, cells)),
            worst=min(gains, default=0.0),
            mean=sum(gains) / max(1, len(gains)),
            mean_above_default=sum(above) / max(1, len(above)),
        )


def summary_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown: all cells, each preset's cells, and cells whose pool is ample."""
    yield (
        f"| cells | number | lost by more than {LOSS} | worst | mean gain on the best other"
        " | on the default |"
    )
    yield "|---|---|---|---|---|---|"
    rows = {"all": list(cells)}
    halves = sorted({cell.half for cell in cells}, reverse=True)
    for half in halves if len(halves) > 1 else []:
        rows[half] = [cell for cell in cells if cell.half == half]
    for preset in dict.fromkeys(cell.preset for cell in cells):
        rows[preset] = [cell for cell in cells if cell.preset == preset]
    rows[f"default within {AMPLE:g} of unlimited"] = [cell for cell in cells if is_ample(cell)]
    for name, some in rows.items():
        row = Summary.of(some)
        lost = f"{row.num_lost} ({100 * row.num_lost / max(1, row.num_cells):.0f} %)"
        values = f"{row.worst:+.2f} | {row.mean:+.2f} | {row.mean_above_default:+.2f}"
        yield f"| {name} | {row.num_cells} | {lost} | {values} |"
    early = sum(cell.changed_early for cell in cells)
    yield (
        "\nThe scoring function changed before the first eviction in "
        f"{early} of {len(cells)} cells."
    )


def lost_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown of the lost cells, the worst first."""
    policies = list(dict.fromkeys(policy for cell in cells for policy in cell.shares))
    yield f"| lost cell | preset | blocks | % | {' | '.join(policies)} | gain |"
    yield "|" + "---|" * (len(policies) + 5)
    for cell in sorted(filter(is_lost, cells), key=gain):
        shares = [f"{cell.shares[name]:.1f}" if name in cell.shares else "" for name in policies]
        where = f"{cell.workload}, {cell.seed} | {cell.preset} | {cell.blocks:,} | {cell.percent}"
        yield f"| {where} | {' | '.join(shares)} | {gain(cell):+.2f} |"


def comparison_lines(before: Sequence[Cell], after: Sequence[Cell]) -> Iterator[str]:
    """Yield the changes of ``adaptive`` in the cells that both have."""
    earlier = {_place(cell): cell for cell in before}
    pairs = [(earlier[_place(cell)], cell) for cell in after if _place(cell) in earlier]
    old, new = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    yield f"{len(pairs)} cells in both"
    if not pairs:
        return
    for name, some in (("before", old), ("after", new)):
        row = Summary.of(some)
        yield f"{name}: {row.num_lost} lost, worst {row.worst:+.2f}, mean {row.mean:+.2f}"
    changes = [(b.shares[ADAPTIVE] - a.shares[ADAPTIVE], a, b) for a, b in pairs]
    better = sum(change > CHANGE for change, _, _ in changes)
    worse = sum(change < -CHANGE for change, _, _ in changes)
    yield f"better by more than {CHANGE}: {better}, worse: {worse}"
    for change, a, b in sorted(changes, key=lambda each: each[0])[:10]:
        if change < -CHANGE:
            yield f"{change:+.2f} {b} ({gain(a):+.2f} to {gain(b):+.2f})"
    for _, a, b in changes:
        if is_lost(b) and not is_lost(a):
            yield f"newly lost: {b} ({gain(a):+.2f} to {gain(b):+.2f})"


def _place(cell: Cell) -> tuple[str, int, str, int]:
    return cell.workload, cell.seed, cell.preset, cell.blocks
