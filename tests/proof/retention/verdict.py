"""Summarizes the cells for ``adaptive``: tables, and a comparison of two results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from kvoxide.lab.replay.input import CLAIRVOYANT, DEFAULT_POLICY, UNLIMITED

from .judge import Cell
from .playing import ADAPTIVE, WITH_ENDS

LOSS: Final = 0.3  # points of hit share from which on a cell counts as lost
CHANGE: Final = 0.1  # points from which on a cell counts as changed
SLOWER: Final = 1.01  # times the default's first-token time from which on a cell counts as slower
MAX_LINES: Final = 40  # lost cells in a table
_COLUMNS: Final = (
    "lost by more than 0.3",
    "worst",
    "mean gain on the best other",
    "on the default",
)
_NO_RIVALS: Final = (ADAPTIVE, WITH_ENDS, UNLIMITED, CLAIRVOYANT)


def gain(cell: Cell, policy: str = ADAPTIVE) -> float:
    """Return the points of hit share by which a policy of ours is above the best other policy."""
    return cell.shares[policy] - cell.shares[best_other(cell)]


def best_other(cell: Cell) -> str:
    """Return the policy with the highest hit share after ``adaptive``."""
    rivals = [policy for policy in cell.shares if policy not in _NO_RIVALS]
    return max(rivals, key=lambda policy: cell.shares[policy])


def is_lost(cell: Cell) -> bool:
    return gain(cell) < -LOSS


@dataclass(frozen=True)
class Summary:
    """A summary of some cells in one line."""

    num_cells: int
    num_lost: int
    worst: float
    mean: float
    mean_above_default: float

    @classmethod
    def of(cls, cells: Sequence[Cell], policy: str = ADAPTIVE) -> "Summary":
        gains = [gain(cell, policy) for cell in cells]
        above = [cell.shares[policy] - cell.shares[DEFAULT_POLICY] for cell in cells]
        return cls(
            num_cells=len(cells),
            num_lost=sum(each < -LOSS for each in gains),
            worst=min(gains, default=0.0),
            mean=sum(gains) / max(1, len(gains)),
            mean_above_default=sum(above) / max(1, len(above)),
        )

    def __str__(self) -> str:
        lost = f"{self.num_lost} ({100 * self.num_lost / max(1, self.num_cells):.0f} %)"
        return f"{lost} | {self.worst:+.2f} | {self.mean:+.2f} | {self.mean_above_default:+.2f}"


def summary_lines(cells: Sequence[Cell], name: str = "cells") -> Iterator[str]:
    """Yield a table in Markdown with both loops: all cells, and the cells of each half, kind of
    workload, preset and pool."""
    loops = list(dict.fromkeys(cell.loop for cell in cells))
    columns = [f"{loop}: {column}" for loop in loops for column in _COLUMNS]
    yield f"| {name} | number | {' | '.join(columns)} |"
    yield "|" + "---|" * (2 + len(columns))
    for name, some in _rows(cells):
        by_loop = [[cell for cell in some if cell.loop == loop] for loop in loops]
        values = " | ".join(str(Summary.of(of_loop)) for of_loop in by_loop)
        yield f"| {name} | {len(by_loop[0])} | {values} |"


def mean_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the same table for the means of cells that differ only in the seed and in the pool's
    neighbour. A single cell depends on chance, above all in the closed loop."""
    yield from summary_lines(means(cells), "means of seeds and neighbours")


def means(cells: Sequence[Cell]) -> list[Cell]:
    """Return a cell for each workload, half, preset, pool and loop, with the means of its cells."""
    alike: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        place = (cell.workload, cell.half, cell.preset, str(cell.pool), cell.loop)
        alike.setdefault(place, []).append(cell)
    return [_mean(some) for some in alike.values()]


def _mean(cells: Sequence[Cell]) -> Cell:
    shares = {name: fmean(cell.shares[name] for cell in cells) for name in cells[0].shares}
    return replace(cells[0], shares=shares, first_token={})


def ends_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown of the cells in which clients say where a session ends: without
    and with this knowledge."""
    some = [cell for cell in cells if WITH_ENDS in cell.shares]
    columns = [f"{name}: {column}" for name in ("adaptive", "with ends") for column in _COLUMNS]
    yield f"| cells with ends | number | {' | '.join(columns)} | most gained | most lost |"
    yield "|" + "---|" * (4 + len(columns))
    for loop in dict.fromkeys(cell.loop for cell in some):
        for name, part in _rows([cell for cell in some if cell.loop == loop]):
            values = " | ".join(str(Summary.of(part, policy)) for policy in (ADAPTIVE, WITH_ENDS))
            changes = [cell.shares[WITH_ENDS] - cell.shares[ADAPTIVE] for cell in part]
            most = f"{max(changes):+.2f} | {min(changes):+.2f}"
            yield f"| {loop}, {name} | {len(part)} | {values} | {most} |"


def policy_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown of the mean hit share of each policy, by loop and pool."""
    policies = _policies(cells)
    yield f"| cells | number | {' | '.join(policies)} |"
    yield "|" + "---|" * (2 + len(policies))
    for loop in dict.fromkeys(cell.loop for cell in cells):
        of_loop = [cell for cell in cells if cell.loop == loop]
        for name, some in [("all", of_loop), *_by(of_loop, "pool"), *_by(of_loop, "kind")]:
            all_shares = [_with_ends(cell.shares) for cell in some]
            averages = [fmean(shares[policy] for shares in all_shares) for policy in policies]
            values = " | ".join(f"{average:.1f}" for average in averages)
            yield f"| {loop}, {name} | {len(some)} | {values} |"


def rival_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown of each policy alone against the best of all others. No client says
    where a session ends."""
    left_out = (WITH_ENDS, UNLIMITED, CLAIRVOYANT)
    policies = [policy for policy in _policies(cells) if policy not in left_out]
    yield f"| policy | number | {' | '.join(_COLUMNS[:3])} |"
    yield "|---|---|---|---|---|"
    for loop in dict.fromkeys(cell.loop for cell in cells):
        of_loop = [cell for cell in cells if cell.loop == loop]
        for policy in policies:
            others = [name for name in policies if name != policy]
            gains = [
                cell.shares[policy] - max(cell.shares[other] for other in others)
                for cell in of_loop
            ]
            lost = sum(each < -LOSS for each in gains)
            values = f"{lost} ({100 * lost / len(gains):.0f} %) | {min(gains):+.2f}"
            yield f"| {loop}, {policy} | {len(gains)} | {values} | {fmean(gains):+.2f} |"


def _with_ends(shares: dict[str, float]) -> dict[str, float]:
    """Return the shares. If no client says an end, ``adaptive`` has the same with ends."""
    return {WITH_ENDS: shares[ADAPTIVE], **shares}


def latency_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown of the first-token times of ``adaptive`` and the default."""
    yield "| cells | number | p50, mean change | p99, mean change | higher p99 | most |"
    yield "|---|---|---|---|---|---|"
    for loop in dict.fromkeys(cell.loop for cell in cells):
        for name, some in _rows([cell for cell in cells if cell.loop == loop]):
            p50, p99 = ([_change(cell, place) for cell in some] for place in (0, 1))
            slower = sum(change > SLOWER for change in p99)
            changes = " | ".join(f"{100 * fmean(each) - 100:+.1f} %" for each in (p50, p99))
            most = f"{100 * max(p99) - 100:+.0f} %"
            yield f"| {loop}, {name} | {len(some)} | {changes} | {slower} | {most} |"


def _change(cell: Cell, place: int) -> float:
    """Return the first-token time of ``adaptive`` as a multiple of the default's."""
    own, default = (cell.first_token[policy][place] for policy in (ADAPTIVE, DEFAULT_POLICY))
    return own / default if default else 1.0


def lost_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown of the lost cells, the worst first."""
    policies = _policies(cells)
    yield f"| lost cell | preset | pool | blocks | loop | {' | '.join(policies)} | gain |"
    yield "|" + "---|" * (len(policies) + 6)
    lost = sorted(filter(is_lost, cells), key=gain)
    for cell in lost[:MAX_LINES]:
        shares = [f"{cell.shares[name]:.1f}" if name in cell.shares else "" for name in policies]
        where = f"{cell.workload}, {cell.seed} | {cell.preset} | {cell.pool} | {cell.blocks:,}"
        yield f"| {where} | {cell.loop} | {' | '.join(shares)} | {gain(cell):+.2f} |"
    if len(lost) > MAX_LINES:
        yield f"\n{len(lost) - MAX_LINES} more"


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
    for name, some in _rows(new):
        names = {_place(cell) for cell in some}
        mean = fmean(change for change, _, cell in changes if _place(cell) in names)
        yield f"{name}: {mean:+.2f}"
    for change, a, b in sorted(changes, key=lambda each: each[0])[:10]:
        if change < -CHANGE:
            yield f"{change:+.2f} {b} ({gain(a):+.2f} to {gain(b):+.2f})"
    for _, a, b in changes:
        if is_lost(b) and not is_lost(a):
            yield f"newly lost: {b} ({gain(a):+.2f} to {gain(b):+.2f})"


def _policies(cells: Sequence[Cell]) -> list[str]:
    found = dict.fromkeys(policy for cell in cells for policy in cell.shares)
    return [policy for policy in found if policy != WITH_ENDS] + [
        policy for policy in found if policy == WITH_ENDS
    ]


def _rows(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    """Yield all cells and parts of them, each with its name."""
    yield "all", list(cells)
    for attribute in ("half", "kind", "preset", "pool"):
        parts = _by(cells, attribute)
        if len(parts) > 1:
            yield from parts


def _by(cells: Sequence[Cell], attribute: str) -> list[tuple[str, list[Cell]]]:
    values = dict.fromkeys(getattr(cell, attribute) for cell in cells)
    suffix = " % pool" if attribute == "pool" else ""
    return [
        (f"{value}{suffix}", [cell for cell in cells if getattr(cell, attribute) == value])
        for value in (sorted(values) if attribute == "pool" else values)
    ]


def _place(cell: Cell) -> tuple[str, int, str, int, str]:
    return cell.workload, cell.seed, cell.preset, cell.blocks, cell.loop
