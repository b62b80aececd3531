"""The pool over the trace: what its blocks are, and how many were evicted."""

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from kvoxide.lab.replay.page.document import Figure
from kvoxide.lab.replay.page.figures.styles import COUNT, REQUESTS, SHARE, Styles, axis, layout
from kvoxide.lab.replay.results import PoolCourse, pool_course
from kvoxide.lab.replay.run import Outcome

_FUNCTIONS: Final = (
    "Letters: the scoring function that took over, R(ecency), F(requency) or H(azard)."
)


def blocks(outcome: Outcome) -> Figure:
    """Draw the states of the blocks of a run's pool over the trace, and the evictions so far."""
    course = pool_course(outcome)
    figure = go.Figure()
    for state in course.states:
        figure.add_scatter(
            x=course.requests,
            y=state.values,
            name=state.name,
            legendgroup=state.name,
            showlegend=any(state.values),
            mode="lines",
            stackgroup="blocks",
            line={"width": 0, "color": state.colour},
            fillcolor=state.colour,
        )
    for evicted in course.evictions:
        figure.add_scatter(
            x=course.requests,
            y=evicted.values,
            yaxis="y2",
            name=evicted.name,
            legendgroup=evicted.name,
            showlegend=any(evicted.values),
            mode="lines",
            line={"width": 2, "color": evicted.colour},
        )
    figure.update_layout(
        **layout(
            400,
            xaxis=axis(REQUESTS, anchor="y2"),
            yaxis=axis(SHARE, title="share of the pool", range=[0, 1], domain=[0.42, 1]),
            yaxis2=axis(COUNT, title="blocks evicted", domain=[0, 0.32]),
            annotations=_scoring_functions(course),
        )
    )
    title = f"Blocks of the pool: {outcome.name}"
    note = _FUNCTIONS if course.scoring_functions else ""
    return Figure(title, note, figure.to_plotly_json())


def _scoring_functions(course: PoolCourse) -> list[dict[str, object]]:
    """Return the first letters of scoring functions, above the pool."""
    return [
        {
            "x": request,
            "y": 1,
            "yref": "paper",
            "yanchor": "bottom",
            "text": name[0].upper(),
            "hovertext": name,
            "showarrow": False,
            "font": {"size": 11},
        }
        for request, name in course.scoring_functions
    ]


def evictions(outcomes: Sequence[Outcome], styles: Styles) -> Figure:
    """Blocks evicted so far, a line per policy."""
    figure = go.Figure()
    for outcome in outcomes:
        rows, name = outcome.result.retention_timeline, outcome.name
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
