"""Draw the hits and losses of prompt tokens, and the states of the pool's blocks over the trace."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from kvoxide.replay.run import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import PercentFormatter

# Okabe and Ito's colours; grey is what no policy has a hand in.
FATES: Final = {
    "hit": "#009E73",
    "full evicted": "#D55E00",
    "tail evicted": "#E69F00",
    "never cached": "#CC79A7",
    "first time": "#DDDDDD",
}
BLOCKS: Final = {
    "in use": "#999999",
    "full waiting": "#0072B2",
    "tail waiting": "#56B4E9",
    "held, pinned": "#F0E442",
    "empty": "#F2F2F2",
}
FIRST_SHARE: Final = 3


def draw_fates(axes: "Axes", outcomes: Sequence[Outcome]) -> None:
    """A bar per run: hit share, and why the rest was not hit."""
    losses = [(o, o.loss_shares) for o in outcomes]
    rows = [(o.run.policy.name, [o.hit_share, *shares]) for o, shares in losses if shares]
    names = [name for name, _ in rows]
    starts = [0.0] * len(rows)
    for index, (fate, colour) in enumerate(FATES.items()):
        widths = [shares[index] for _, shares in rows]
        axes.barh(range(len(rows)), widths, left=starts, color=colour, label=fate)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of prompt tokens")
    axes.xaxis.set_major_formatter(_percent())


def draw_blocks(axes: "Axes", outcome: Outcome) -> None:
    """Draw the states of the blocks of a run's pool over the trace, the evicted blocks, and the
    orderings."""
    rows = outcome.result.retention_timeline
    finished, shares = rows[:, 0], rows[:, FIRST_SHARE : FIRST_SHARE + len(BLOCKS)]
    axes.stackplot(finished, shares.T, colors=list(BLOCKS.values()), labels=list(BLOCKS))
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(_percent())
    axes.set_ylabel(f"{outcome.run.policy.name}\nblocks")
    for ordering, points in groupby(zip(finished, outcome.result.orderings, strict=True), _second):
        if ordering is not None:
            # The names would overlap.
            axes.text(next(points)[0], 1.02, ordering[0].upper(), fontsize="x-small")
    evictions = axes.twinx()
    evictions.plot(finished, rows[:, -2], color="black", linewidth=1, linestyle="-")
    evictions.plot(finished, rows[:, -1], color="black", linewidth=1, linestyle=":")
    evictions.set_ylim(bottom=0)
    evictions.set_ylabel("evicted blocks:\nfull (solid), tail (dotted)", fontsize="x-small")


def _percent() -> "PercentFormatter":
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1.0)


def _second(point: tuple[float, str | None]) -> str | None:
    return point[1]
