"""Summarizes the cells: hit shares of all variants, one variant compared with the others, and what
moves between the tiers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from tests.proof.retention.verdict import CHANGE, LOSS, MAX_LINES

from .judge import Cell
from .playing import PlayedTiers
from .variants import ADAPTIVE_ARC, ADAPTIVE_LRU, VARIANTS, WRITE_THROUGH, Variant

_VARIANTS: Final = {variant.name: variant for variant in VARIANTS}


def played_variants(cells: Sequence[Cell]) -> list[Variant]:
    """Return the variants of the cells, in order."""
    return [variant for name, variant in _VARIANTS.items() if name in cells[0].runs]


def best_other(cell: Cell, judged: Variant) -> Variant:
    """Return the variant with the most hits among all others with two tiers."""
    rivals = [each for each in played_variants([cell]) if each.is_rival and each != judged]
    return max(rivals, key=cell.share)


def gain(cell: Cell, judged: Variant) -> float:
    """Return the points of hit share by which a variant is above the best other."""
    return cell.share(judged) - cell.share(best_other(cell, judged))


def mean_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown of the mean hit share of each variant, by half, size and preset."""
    variants = played_variants(cells)
    yield f"| hit share in % | cells | {' | '.join(each.name for each in variants)} |"
    yield "|---" * (2 + len(variants)) + "|"
    for name, some in _rows(cells):
        means = (fmean(cell.share(variant) for cell in some) for variant in variants)
        yield f"| {name} | {len(some)} | {' | '.join(f'{mean:.1f}' for mean in means)} |"


@dataclass(frozen=True)
class Summary:
    """One variant compared with the best of the others, over some cells. Gains are in points of hit
    share: the mean and the median over ``adaptive/arc``, ``adaptive/lru`` and the best other."""

    num_cells: int
    num_lost: int
    worst: float
    gains: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, cells: Sequence[Cell], judged: Variant) -> "Summary":
        above_best = [gain(cell, judged) for cell in cells]
        above = [
            [cell.share(judged) - cell.share(other) for cell in cells]
            for other in (ADAPTIVE_ARC, ADAPTIVE_LRU)
        ]
        return cls(
            num_cells=len(cells),
            num_lost=sum(each < -LOSS for each in above_best),
            worst=min(above_best),
            gains=tuple((fmean(each), median(each)) for each in (*above, above_best)),
        )

    def __str__(self) -> str:
        lost = f"{self.num_lost} ({100 * self.num_lost / self.num_cells:.0f} %)"
        gains = " | ".join(f"{mean:+.2f}, {middle:+.2f}" for mean, middle in self.gains)
        return f"{self.num_cells} | {lost} | {self.worst:+.2f} | {gains}"


def judged_lines(cells: Sequence[Cell], judged: Variant) -> Iterator[str]:
    """Yield a table in Markdown of one variant compared with the others."""
    names = (ADAPTIVE_ARC.name, ADAPTIVE_LRU.name, "the best other")
    gains = " | ".join(f"mean, median gain over {name}" for name in names)
    yield f"| {judged.name} | cells | lost by more than {LOSS} | worst | {gains} |"
    yield "|---|---|---|---|---|---|---|"
    for name, some in _rows(cells):
        yield f"| {name} | {Summary.of(some, judged)} |"


def best_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown of each variant with two tiers against the best of the others."""
    yield f"| variant | cells | lost by more than {LOSS} | worst | mean gain over the best other |"
    yield "|---|---|---|---|---|"
    for half, some in _by(cells, "half"):
        for variant in filter(lambda each: each.is_rival, played_variants(cells)):
            gains = [gain(cell, variant) for cell in some]
            lost = sum(each < -LOSS for each in gains)
            share = f"{lost} ({100 * lost / len(gains):.0f} %)"
            row = f"{half}, {variant.name} | {len(gains)} | {share}"
            yield f"| {row} | {min(gains):+.2f} | {fmean(gains):+.2f} |"


def transfer_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown of the blocks that each variant stores and loads: sums, and the
    median of the cells' ratios, as multiples of vLLM's write-through and ``adaptive/lru``."""
    others = (WRITE_THROUGH, ADAPTIVE_LRU)
    over = " | ".join(f"stored, times {other.name}: sum, median" for other in others)
    columns = (
        f"stored | {over} | loaded | loaded, times {ADAPTIVE_LRU.name}: sum, median | held twice"
        " | hits from CPU memory | without a tail"
    )
    yield f"| variant | {columns} |"
    yield "|---" * 9 + "|"
    for half, some in _by(cells, "half"):
        for variant in filter(lambda each: each.is_rival, played_variants(cells)):
            stored = " | ".join(_times(some, _stored, variant, other) for other in others)
            loaded = _times(some, _loaded, variant, ADAPTIVE_LRU)
            runs = [cell.runs[variant.name] for cell in some]
            sums = [f"{sum(map(count, runs)) / 1000:,.0f}k" for count in (_stored, _loaded)]
            twice = [run.held_twice for run in runs if run.held_twice is not None]
            shares = (
                fmean(twice) if twice else 0.0,
                _part(runs, lambda run: run.loaded_tokens, lambda run: run.hit_tokens),
                _part(runs, lambda run: run.without_tail_tokens, lambda run: run.prompt_tokens),
            )
            counts = f"{sums[0]} | {stored} | {sums[1]} | {loaded}"
            percents = " | ".join(f"{100 * share:.1f} %" for share in shares)
            yield f"| {half}, {variant.name} | {counts} | {percents} |"


def clock_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table in Markdown of the times to the first token, as means over the cells: the
    median, the 99th percentile and the mean, and their change from vLLM's write-through."""
    yield "| first token | p50, ms | p99, ms | mean, ms | p50 | p99 | mean |"
    yield "|---" * 7 + "|"
    for half, some in _by(cells, "half"):
        for variant in played_variants(cells):
            times, changes = [], []
            for time in _TIMES:
                own = [time(cell.runs[variant.name]) for cell in some]
                default = [time(cell.runs[WRITE_THROUGH.name]) for cell in some]
                times.append(f"{1000 * fmean(own):,.0f}")
                ratios = [each / base for each, base in zip(own, default, strict=True) if base]
                changes.append(f"{100 * fmean(ratios) - 100:+.1f} %" if ratios else "-")
            yield f"| {half}, {variant.name} | {' | '.join([*times, *changes])} |"


def lost_lines(cells: Sequence[Cell], judged: Variant) -> Iterator[str]:
    """Yield a table in Markdown of the lost cells, the worst first."""
    variants = played_variants(cells)
    names = " | ".join(variant.name for variant in variants)
    yield f"| lost cell | preset | size | blocks | {names} | gain |"
    yield "|---" * (5 + len(variants)) + "|"
    lost = [cell for cell in cells if gain(cell, judged) < -LOSS]
    for cell in sorted(lost, key=lambda cell: gain(cell, judged))[:MAX_LINES]:
        shares = " | ".join(f"{cell.share(variant):.1f}" for variant in variants)
        where = f"{cell.workload}, {cell.seed} | {cell.preset} | {cell.size}"
        points = f"{gain(cell, judged):+.2f}"
        yield f"| {where} | {cell.memory.blocks:,} | {shares} | {points} |"
    if len(lost) > MAX_LINES:
        yield f"\n{len(lost) - MAX_LINES} more"


def comparison_lines(
    before: Sequence[Cell], after: Sequence[Cell], judged: Variant
) -> Iterator[str]:
    """Yield the changes of one variant in the cells that both have."""
    earlier = {str(cell): cell for cell in before if judged.name in cell.runs}
    pairs = [(earlier[str(cell)], cell) for cell in after if str(cell) in earlier]
    yield f"{judged.name}: {len(pairs)} cells before and now"
    if not pairs:
        return
    for name, some in zip(("before", "now"), zip(*pairs, strict=True), strict=True):
        summary = Summary.of(some, judged)
        mean = fmean(cell.share(judged) for cell in some)
        yield f"{name}: {mean:.2f} %, {summary.num_lost} lost, worst {summary.worst:+.2f}"
    changes = [(new.share(judged) - old.share(judged), old, new) for old, new in pairs]
    better = sum(change > CHANGE for change, _, _ in changes)
    worse = sum(change < -CHANGE for change, _, _ in changes)
    yield f"better by more than {CHANGE}: {better}, worse: {worse}"
    for name, part in _rows([new for _, new in pairs]):
        names = {str(cell) for cell in part}
        mean = fmean(change for change, _, new in changes if str(new) in names)
        yield f"{name}: {mean:+.2f}"
    for change, old, new in sorted(changes, key=lambda each: each[0]):
        is_newly_lost = gain(new, judged) < -LOSS <= gain(old, judged)
        if change < -CHANGE or is_newly_lost:
            lost = ", newly lost" if is_newly_lost else ""
            gains = f"gain {gain(old, judged):+.2f} to {gain(new, judged):+.2f}"
            yield f"{change:+.2f} {new} ({gains}{lost})"


Count = Callable[[PlayedTiers], float]
_TIMES: Final[tuple[Count, ...]] = (
    lambda run: run.first_token_p50,
    lambda run: run.first_token_p99,
    lambda run: run.first_token_mean,
)


def _stored(run: PlayedTiers) -> int:
    return run.stored_chunks


def _loaded(run: PlayedTiers) -> int:
    return run.loaded_chunks


def _times(cells: Sequence[Cell], count: Count, variant: Variant, other: Variant) -> str:
    """Return the ratio of the sums, and the median of the cells' ratios."""
    pairs = [(count(cell.runs[variant.name]), count(cell.runs[other.name])) for cell in cells]
    ratios = [own / base for own, base in pairs if base]
    total = sum(base for _, base in pairs)
    if not total:
        return "-"
    return f"{sum(own for own, _ in pairs) / total:.2f}, {median(ratios):.2f}"


def _part(runs: Sequence[PlayedTiers], part: Count, whole: Count) -> float:
    """Return the mean over the cells, so that each cell counts the same."""
    return fmean(part(run) / max(1, whole(run)) for run in runs)


def _rows(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    """Yield the cells of each half and its parts, each with its name."""
    for half, some in _by(cells, "half"):
        yield f"{half}, all", some
        for attribute in ("size", "preset"):
            for name, part in _by(some, attribute):
                yield f"{half}, {name}", part


def _by(cells: Sequence[Cell], attribute: str) -> list[tuple[str, list[Cell]]]:
    values = dict.fromkeys(getattr(cell, attribute) for cell in cells)
    return [
        (value, [cell for cell in cells if getattr(cell, attribute) == value]) for value in values
    ]
