"""Plots: hit share over the trace and why it is not more, the pool's occupancy, and hit share over
a quantity."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kvoxide.lab.output.figures import new_figure
from kvoxide.lab.replay.results.curves import HitShares, over_trace
from kvoxide.lab.replay.results.figures import (
    Dash,
    has_tick_for_each,
    is_logarithmic,
    is_reference,
    line_style,
)
from kvoxide.lab.replay.results.retention_plots import draw_blocks, draw_fates
from kvoxide.lab.replay.run import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES: Final[Mapping[Dash, str]] = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_BLOCKS_HEIGHT: Final = 1.4
# The place of a legend to the right of an axis on the right.
_BESIDE_TWO_AXES: Final = 1.17


def draw_trace(outcomes: Sequence[Outcome], title: str) -> "Figure":
    """Hit share so far and moving, what became of all prompt tokens, and the pool's occupancy, over
    one trace and one pool size; then what the blocks of each policy's pool are."""
    pools = [outcome for outcome in outcomes if outcome.has_pool]
    fates_height = 0.6 + 0.25 * len(outcomes)
    heights = [4, fates_height, 2.5, *[_BLOCKS_HEIGHT] * len(pools)]
    figure = new_figure(title, height=sum(heights) + 1)
    hits, fates, pool, *blocks = figure.subplots(len(heights), 1, height_ratios=heights)
    pool.sharex(hits)
    draw_fates(fates, outcomes)
    for axes, outcome in zip(blocks, pools, strict=True):
        axes.sharex(hits)
        draw_blocks(axes, outcome)
    for outcome, style in zip(outcomes, _styles(_names(outcomes)), strict=True):
        _draw_hit_share(hits, outcome, style)
        if outcome.has_pool:
            _draw_occupancy(pool, outcome, style)
    hits.set_ylabel("hit share of prompt tokens\nso far (thick), moving (thin)")
    pool.set_ylabel("share of the pool: in use (solid),\ncached (dashed), pinned (dotted)")
    pool.set_xlabel("requests")
    _as_share(hits)
    _as_share(pool)
    _legend(hits)
    _legend(fates)
    for axes in blocks[:1]:
        _legend(axes, beside=_BESIDE_TWO_AXES)
    return figure


def draw_hit_shares(shares: HitShares, title: str) -> "Figure":
    """Hit share over a quantity, one line per policy. Grey lines are there to compare with."""
    figure = new_figure(title, height=5)
    axes = figure.subplots()
    for (name, row), style in zip(
        shares.by_policy.items(), _styles(list(shares.by_policy)), strict=True
    ):
        axes.plot(shares.xs, row, marker="" if is_reference(name) else "o", label=name, **style)
    if is_logarithmic(shares.xs):
        axes.set_xscale("log")
    if has_tick_for_each(shares.xs):
        axes.set_xticks(shares.xs, [f"{x:,}" for x in shares.xs])
        axes.minorticks_off()
    axes.set_xlabel(shares.x_name)
    axes.set_ylabel("hit share of prompt tokens")
    _as_share(axes)
    _legend(axes)
    return figure


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.name for outcome in outcomes]


def _styles(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        style = line_style(names, name)
        yield {
            "color": style.colour,
            "linestyle": _DASHES[style.dash],
            "linewidth": style.width,
            "markersize": 2 * style.width + 1,
        }


def _draw_hit_share(axes: "Axes", outcome: Outcome, style: dict[str, Any]) -> None:
    course = over_trace(outcome)
    axes.plot(course.requests, course.so_far, label=outcome.name, **style)
    axes.plot(course.requests, course.moving, **{**style, "linewidth": 0.7, "alpha": 0.6})


def _draw_occupancy(axes: "Axes", outcome: Outcome, style: dict[str, Any]) -> None:
    finished, used, cached, pinned = outcome.result.timeline.T
    thin = {**style, "linewidth": style["linewidth"] / 2}
    axes.plot(finished, used, **thin)
    axes.plot(finished, cached, **{**thin, "linestyle": "--"})
    if pinned.any():
        axes.plot(finished, pinned, **{**thin, "linestyle": ":"})


def _as_share(axes: "Axes") -> None:
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0, min(1.03, axes.get_ylim()[1]))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(axes: "Axes", beside: float = 1.0) -> None:
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(beside, 0.5))
