"""Hits: their share under each policy and why it is not more, over pool sizes, over the trace."""

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from kvoxide.lab.replay.page.document import Figure, Width
from kvoxide.lab.replay.page.figures.styles import (
    MOST_POINTS,
    REQUESTS,
    SHARE,
    Styles,
    axis,
    layout,
    quantity_axis,
)
from kvoxide.lab.replay.results import HitShares, fate_bars, is_reference, over_trace
from kvoxide.lab.replay.run import Outcome

_BAR_HEIGHT = 38
_AXES_HEIGHT = 70


def fates(outcomes: Sequence[Outcome], styles: Styles, title: str, width: Width) -> Figure:
    """A bar per run at one pool size: hit share, and why the rest was not hit; and lines at what
    policies are compared with."""
    bars = fate_bars([outcome for outcome in outcomes if outcome.has_pool])
    figure = go.Figure()
    for part in bars.parts:
        figure.add_bar(
            y=bars.names,
            x=part.values,
            orientation="h",
            name=part.name,
            legendgroup=part.name,
            showlegend=any(part.values),
            marker={"color": part.colour, "line": {"width": 0}},
            texttemplate="%{x:.1%}",
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            hovertemplate="%{x:.2%}",
        )
    for outcome in outcomes:
        if not outcome.has_pool:
            _add_upright(figure, outcome, styles, len(bars.names))
    figure.update_layout(
        **layout(
            _AXES_HEIGHT + _BAR_HEIGHT * max(2, len(bars.names)),
            barmode="stack",
            bargap=0.3,
            uniformtext={"minsize": 10, "mode": "hide"},
            hovermode="y unified",
            xaxis=axis(SHARE, title="share of prompt tokens", range=[0, 1]),
            yaxis=axis(autorange="reversed", type="category", ticksuffix="  "),
        )
    )
    return Figure(title, "", figure.to_plotly_json(), width)


def _add_upright(figure: go.Figure, outcome: Outcome, styles: Styles, num_bars: int) -> None:
    name = outcome.name
    figure.add_scatter(
        x=[outcome.hit_share] * 2,
        y=[-0.5, num_bars - 0.5],
        yaxis="y2",
        mode="lines",
        name=name,
        legendgroup=name,
        line=styles.line(name),
        hovertemplate="%{x:.2%}",
    )
    figure.update_layout(
        yaxis2={"overlaying": "y", "range": [num_bars - 0.5, -0.5], "visible": False}
    )


def hit_shares(shares: HitShares, styles: Styles, title: str) -> Figure:
    """Hit share over a quantity, a line per policy, with a gap where a run is missing."""
    figure = go.Figure()
    for name, row in shares.by_policy.items():
        figure.add_scatter(
            x=shares.xs,
            y=[None if math.isnan(share) else share for share in row],
            mode="lines" if is_reference(name) else "lines+markers",
            name=name,
            legendgroup=name,
            line=styles.line(name),
            marker={"size": 8},
        )
    figure.update_layout(
        **layout(
            360,
            xaxis=axis(quantity_axis(shares.xs), title=shares.x_name),
            yaxis=axis(SHARE, title="hit share of prompt tokens"),
        )
    )
    return Figure(title, "", figure.to_plotly_json(), width="whole")


def hit_course(outcomes: Sequence[Outcome], styles: Styles) -> Figure:
    """Hit share over the trace: so far, and moving."""
    figure = go.Figure()
    for outcome in outcomes:
        if outcome.is_bound:
            continue
        name, course = outcome.name, over_trace(outcome)
        kept = np.unique(np.linspace(0, len(course.requests) - 1, MOST_POINTS, dtype=int))
        if not len(course.requests):
            continue
        line = styles.line(name)
        curves = [(course.so_far, False), (course.moving, True)]
        for shares, is_moving in curves if outcome.has_pool else curves[:1]:
            figure.add_scatter(
                x=course.requests[kept].tolist(),
                y=shares[kept].round(6).tolist(),
                mode="lines",
                name=name,
                legendgroup=name,
                showlegend=not is_moving,
                opacity=0.6 if is_moving else 1,
                hoverinfo="skip" if is_moving else None,
                line={**line, "width": 1} if is_moving else line,
            )
    figure.update_layout(
        **layout(360, xaxis=axis(REQUESTS), yaxis=axis(SHARE, title="hit share of prompt tokens"))
    )
    note = "Thick: all requests so far. Thin: the last twentieth of the trace."
    return Figure("Hit share over the trace", note, figure.to_plotly_json(), width="whole")
