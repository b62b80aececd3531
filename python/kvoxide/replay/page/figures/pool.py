"""The pool over the trace: what its blocks are, and how many were evicted."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import plotly.graph_objects as go

from kvoxide.replay.page.colours import BLOCKS as COLOURS
from kvoxide.replay.page.colours import EVICTIONS
from kvoxide.replay.page.document import Figure
from kvoxide.replay.page.figures.styles import COUNT, REQUESTS, SHARE, Styles, axis, layout
from kvoxide.replay.results import BLOCKS, FIRST_SHARE
from kvoxide.replay.run import Outcome

_ORDERINGS: Final = "Letters: the ordering that took over, R(ecency), F(requency) or H(azard)."


def blocks(outcome: Outcome) -> Figure:
    """Draw the states of the blocks of a run's pool over the trace, and the evictions so far."""
    rows = outcome.result.retention_timeline
    finished = rows[:, 0].tolist()
    figure = go.Figure()
    for index, (name, (colour, _)) in enumerate(zip(BLOCKS, COLOURS, strict=True)):
        figure.add_scatter(
            x=finished,
            y=rows[:, FIRST_SHARE + index].tolist(),
            name=name,
            legendgroup=name,
            showlegend=bool(rows[:, FIRST_SHARE + index].any()),
            mode="lines",
            stackgroup="blocks",
            line={"width": 0, "color": colour},
            fillcolor=colour,
        )
    for column, name, (colour, _) in zip((-2, -1), ("full", "tail"), EVICTIONS, strict=True):
        figure.add_scatter(
            x=finished,
            y=rows[:, column].tolist(),
            yaxis="y2",
            name=f"evicted {name}",
            legendgroup=f"evicted {name}",
            showlegend=bool(rows[:, column].any()),
            mode="lines",
            line={"width": 2, "color": colour},
        )
    figure.update_layout(
        **layout(
            400,
            xaxis=axis(REQUESTS, anchor="y2"),
            yaxis=axis(SHARE, title="share of the pool", range=[0, 1], domain=[0.42, 1]),
            yaxis2=axis(COUNT, title="blocks evicted", domain=[0, 0.32]),
            annotations=_orderings(outcome, finished),
        )
    )
    title = f"Blocks of the pool: {outcome.run.policy.name}"
    note = _ORDERINGS if any(outcome.result.orderings) else ""
    return Figure(title, note, figure.to_plotly_json())


def _orderings(outcome: Outcome, finished: Sequence[float]) -> list[dict[str, object]]:
    """The orderings that took over under adaptive retention, above the pool."""
    points = zip(finished, outcome.result.orderings, strict=True)
    changes = [(name, next(at)[0]) for name, at in groupby(points, lambda point: point[1])]
    return [
        {
            "x": x,
            "y": 1,
            "yref": "paper",
            "yanchor": "bottom",
            "text": name[0].upper(),
            "hovertext": name,
            "showarrow": False,
            "font": {"size": 11},
        }
        for name, x in changes
        if name is not None
    ]


def evictions(outcomes: Sequence[Outcome], styles: Styles) -> Figure:
    """Blocks evicted so far, a line per policy."""
    figure = go.Figure()
    for outcome in outcomes:
        rows, name = outcome.result.retention_timeline, outcome.run.policy.name
        figure.add_scatter(
            x=rows[:, 0].tolist(),
            y=(rows[:, -2] + rows[:, -1]).tolist(),
            mode="lines",
            name=name,
            legendgroup=name,
            line=styles.line(name),
        )
    figure.update_layout(
        **layout(280, xaxis=axis(REQUESTS), yaxis=axis(COUNT, title="blocks evicted"))
    )
    return Figure("Evictions so far", "", figure.to_plotly_json(), width="whole")
