"""Draw the hits and losses of prompt tokens, and the states of the pool's blocks over the trace."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvoxide.lab.replay.results.figures import fate_bars, pool_course
from kvoxide.lab.replay.run import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import PercentFormatter

_EVICTION_LINES: Final = ("-", ":")


def draw_fates(axes: "Axes", outcomes: Sequence[Outcome]) -> None:
    """Draw a bar per run: hit share, and why the rest was not hit."""
    bars = fate_bars(outcomes)
    starts = [0.0] * len(bars.names)
    for part in bars.parts:
        rows = range(len(bars.names))
        axes.barh(rows, part.values, left=starts, color=part.colour, label=part.name)
        starts = [start + width for start, width in zip(starts, part.values, strict=True)]
    axes.set_yticks(range(len(bars.names)), bars.names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of prompt tokens")
    axes.xaxis.set_major_formatter(_percent())


def draw_blocks(axes: "Axes", outcome: Outcome) -> None:
    """Draw the states of the blocks of a run's pool over the trace, the evicted blocks, and the
    scoring functions."""
    course = pool_course(outcome)
    axes.stackplot(
        course.requests,
        [state.values for state in course.states],
        colors=[state.colour for state in course.states],
        labels=[state.name for state in course.states],
    )
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(_percent())
    axes.set_title(outcome.name, fontsize="small")
    axes.set_ylabel("blocks")
    for request, function in course.scoring_functions:
        # The names would overlap.
        axes.text(request, 1.02, function[0].upper(), fontsize="x-small")
    evictions = axes.twinx()
    for evicted, line in zip(course.evictions, _EVICTION_LINES, strict=True):
        evictions.plot(course.requests, evicted.values, color="black", linewidth=1, linestyle=line)
    evictions.set_ylim(bottom=0)
    evictions.set_ylabel("evicted blocks:\nfull (solid), tail (dotted)", fontsize="x-small")


def _percent() -> "PercentFormatter":
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1.0)
