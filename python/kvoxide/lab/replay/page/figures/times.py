"""Times: quantiles per run, over pool sizes, over the time of arrival, and per instance."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvoxide._core import InstanceResult, ServingResult
from kvoxide.lab.replay.page.document import Figure
from kvoxide.lab.replay.page.figures.styles import (
    COUNT,
    SECONDS,
    SHARE,
    Styles,
    axis,
    layout,
    quantity_axis,
)
from kvoxide.lab.replay.run import Outcome

Timed = tuple[Outcome, ServingResult]
TimeName = Literal["time_to_first_token", "time_between_tokens"]

TIMES: Final[dict[TimeName, str]] = {
    "time_to_first_token": "Time to the first token",
    "time_between_tokens": "Time between tokens",
}
_QUANTILES: Final = (("p50", "circle"), ("p90", "diamond"), ("p99", "line-ns-open"))
_NUM_BINS: Final = 60
_ROW_HEIGHT: Final = 36


def quantiles(timed: Sequence[Timed], styles: Styles, which: TimeName) -> Figure:
    """p50, p90 and p99 of each run at one pool size, on a line of its own."""
    figure = go.Figure()
    for outcome, result in timed:
        seconds: tuple[float, float, float] | None = getattr(result.total, which)
        if seconds is None:
            continue
        name = outcome.name
        figure.add_scatter(
            x=list(seconds),
            y=[name] * len(seconds),
            mode="lines+markers",
            name=name,
            legendgroup=name,
            showlegend=False,
            line={"color": styles.colour(name), "width": 2},
            marker={
                "size": 12,
                "symbol": [symbol for _, symbol in _QUANTILES],
                "line": {"width": 2},
            },
            customdata=[quantile for quantile, _ in _QUANTILES],
            hovertemplate="%{customdata} %{x:,.4f} s<extra></extra>",
        )
    figure.update_layout(
        **layout(
            70 + _ROW_HEIGHT * max(2, len(timed)),
            hovermode="closest",
            xaxis=axis(SECONDS),
            yaxis=axis(autorange="reversed", type="category", ticksuffix="  "),
        )
    )
    note = "Circle: p50. Diamond: p90. Stroke: p99."
    return Figure(TIMES[which], note, figure.to_plotly_json())


def over_pools(
    timed: Sequence[Timed], styles: Styles, sizes: Sequence[int], which: TimeName, at: int
) -> Figure:
    """One quantile over pool sizes in blocks, a line per policy."""
    figure = go.Figure()
    for name in dict.fromkeys(o.name for o, _ in timed):
        seconds = {o.run.blocks: getattr(r.total, which) for o, r in timed if o.name == name}
        rows = [seconds.get(size, seconds.get(None)) for size in sizes]
        figure.add_scatter(
            x=list(sizes),
            y=[None if row is None else row[at] for row in rows],
            mode="lines" if None in seconds else "lines+markers",
            name=name,
            legendgroup=name,
            line=styles.line(name),
            marker={"size": 8},
        )
    figure.update_layout(
        **layout(
            xaxis=axis(quantity_axis(sizes), title="pool size in blocks"),
            yaxis=axis(SECONDS),
        )
    )
    title = f"{TIMES[which]}, {_QUANTILES[at][0]}"
    return Figure(title, "", figure.to_plotly_json(), width="third")


def over_arrivals(timed: Sequence[Timed], styles: Styles) -> Figure:
    """The time to the first token over the time of arrival: p90 and p50 of each part of it."""
    figure = go.Figure()
    for outcome, result in timed:
        name = outcome.name
        line = styles.line(name)
        arrived, waited = _waits(result)
        if not len(arrived):
            continue
        middles, rows = _by_part(arrived, waited)
        for quantile, row in zip((50, 90), rows, strict=True):
            is_median = quantile == 50
            figure.add_scatter(
                x=middles,
                y=row,
                mode="lines",
                name=f"{name}, p{quantile}",
                legendgroup=name,
                showlegend=not is_median,
                opacity=0.5 if is_median else 1,
                line={**line, "width": 1.2} if is_median else line,
            )
    figure.update_layout(
        **layout(
            360,
            xaxis=axis({"ticksuffix": " s", "tickformat": ",d"}, title="arrival"),
            yaxis=axis(SECONDS),
        )
    )
    note = (
        "Thick: p90. Thin: p50. Each point has the requests that arrived in one"
        f" {_NUM_BINS}th of the time."
    )
    return Figure(
        "Time to the first token over the time of arrival",
        note,
        figure.to_plotly_json(),
        width="whole",
    )


def _waits(result: ServingResult) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """When requests arrived and how long they waited for their first token; without those that
    have none."""
    arrived, first, _ = result.moments.T
    known = ~np.isnan(first)
    return arrived[known], (first - arrived)[known]


def _by_part(
    arrived: NDArray[np.float64], waited: NDArray[np.float64]
) -> tuple[list[float], list[list[float]]]:
    """The middle of each part of the time in which requests arrived, and p50 and p90 of it."""
    edges = np.linspace(arrived.min(), max(arrived.max(), arrived.min() + 1e-9), _NUM_BINS + 1)
    part = np.clip(np.searchsorted(edges, arrived, "right") - 1, 0, _NUM_BINS - 1)
    present = np.unique(part)
    rows = [[float(np.quantile(waited[part == p], q)) for p in present] for q in (0.5, 0.9)]
    return ((edges[:-1] + edges[1:]) / 2)[present].tolist(), rows


def by_instance(timed: Sequence[Timed], styles: Styles) -> list[Figure]:
    """Draw requests, hit shares and times to the first token per instance, at one pool size."""
    return [
        _instances(timed, styles, "Requests by instance", COUNT, lambda r: r.requests),
        _instances(timed, styles, "Hit share by instance", SHARE, _hit_share),
        _instances(timed, styles, "Time to the first token by instance, p90", SECONDS, _p90),
    ]


def _hit_share(result: InstanceResult) -> float:
    return result.hit_tokens / max(1, result.prompt_tokens)


def _p90(result: InstanceResult) -> float | None:
    return None if result.time_to_first_token is None else result.time_to_first_token[1]


def _instances(
    timed: Sequence[Timed],
    styles: Styles,
    title: str,
    unit: dict[str, str],
    value: Callable[[InstanceResult], float | None],
) -> Figure:
    figure = go.Figure()
    for outcome, result in timed:
        name = outcome.name
        figure.add_bar(
            x=list(range(len(result.instances))),
            y=[value(instance) for instance in result.instances],
            name=name,
            legendgroup=name,
            marker={"color": styles.colour(name)},
        )
    figure.update_layout(
        **layout(
            barmode="group",
            bargap=0.25,
            xaxis=axis(title="instance", dtick=max(1, len(timed[0][1].instances) // 12)),
            yaxis=axis(unit),
        )
    )
    return Figure(title, "", figure.to_plotly_json(), width="third")
