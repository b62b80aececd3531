"""Describe the figures that ``--plot`` and ``--html`` both draw: series, colours and lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Literal

from kvoxide.lab.output.colours import (
    BLOCKS,
    EVICTIONS,
    FATES,
    POLICIES,
    REFERENCE,
)
from kvoxide.lab.replay.input import CLAIRVOYANT, UNLIMITED
from kvoxide.lab.replay.run import Outcome

_FIRST_SHARE: Final = 3
_MOST_TICKS: Final = 12

Dash = Literal["solid", "dash", "dot", "dashdot"]
_REFERENCE_DASHES: Final[Mapping[str, Dash]] = {UNLIMITED: "dash", CLAIRVOYANT: "dot"}
_REFERENCE_WIDTH: Final = 1.8


@dataclass(frozen=True)
class Series:
    """Values with a name and a colour."""

    name: str
    values: list[float]
    colour: str


@dataclass(frozen=True)
class FateBars:
    """A bar for each policy in ``names``; each series is one part of all bars. Shares are of prompt
    tokens (0 to 1)."""

    names: list[str]
    parts: list[Series]


def fate_bars(outcomes: Sequence[Outcome]) -> FateBars:
    """Return hit share, and why the rest was not hit, for each outcome except bounds."""
    losses = [(outcome, outcome.loss_shares) for outcome in outcomes]
    rows = [(o.name, [*_hit_shares(o), *shares]) for o, shares in losses if shares]
    parts = [
        Series(name, [shares[index] for _, shares in rows], colour)
        for index, (name, (colour, _)) in enumerate(FATES.items())
    ]
    on_gpu, on_cpu, *_ = parts
    if all(outcome.loaded_share is None for outcome in outcomes):
        parts.remove(on_cpu)
    else:
        parts[0] = replace(on_gpu, name="hit on GPU")
    return FateBars([name for name, _ in rows], parts)


def _hit_shares(outcome: Outcome) -> list[float]:
    loaded = outcome.loaded_share or 0.0
    return [outcome.hit_share - loaded, loaded]


@dataclass(frozen=True)
class PoolCourse:
    """The blocks of a pool after each number of finished ``requests``.

    ``states`` are shares of the pool (0 to 1) that add up to 1, ``evictions`` numbers of blocks so
    far. ``scoring_functions`` took over in turn, each with the request after which it began.
    """

    requests: list[float]
    states: list[Series]
    evictions: list[Series]
    scoring_functions: list[tuple[float, str]]


def pool_course(outcome: Outcome) -> PoolCourse:
    """Return the course of an outcome that has a pool."""
    rows = outcome.result.retention_timeline
    requests: list[float] = rows[:, 0].tolist()
    points = zip(requests, outcome.result.scoring_functions, strict=True)
    begins = [(name, next(at)[0]) for name, at in groupby(points, lambda point: point[1])]
    return PoolCourse(
        requests,
        [
            Series(name, rows[:, _FIRST_SHARE + index].tolist(), colour)
            for index, (name, (colour, _)) in enumerate(BLOCKS.items())
        ],
        [
            Series(name, rows[:, index - len(EVICTIONS)].tolist(), colour)
            for index, (name, (colour, _)) in enumerate(EVICTIONS.items())
        ],
        [(request, name) for name, request in begins if name is not None],
    )


@dataclass(frozen=True)
class LineStyle:
    """The look of a line. ``width`` is in the unit of the library that draws it."""

    colour: str
    width: float
    dash: Dash = "solid"


def line_style(names: Sequence[str], name: str) -> LineStyle:
    """Return the line of ``name``, a policy or a line that policies are compared with, among the
    lines of a figure. Later lines are thinner, so that lines that coincide are all visible."""
    if (dash := _REFERENCE_DASHES.get(name)) is not None:
        return LineStyle(REFERENCE[0], _REFERENCE_WIDTH, dash)
    policies = [other for other in names if other not in _REFERENCE_DASHES]
    colour, _ = POLICIES[policies.index(name) % len(POLICIES)]
    again = policies.index(name) >= len(POLICIES)
    width = max(_REFERENCE_WIDTH, 3.4 - 0.5 * policies.index(name))
    return LineStyle(colour, width, "dashdot" if again else "solid")


def is_reference(name: str) -> bool:
    """Return whether this is a line that policies are compared with."""
    return name in _REFERENCE_DASHES


def is_logarithmic(xs: Sequence[int]) -> bool:
    """Return whether the axis of these quantities is logarithmic."""
    return min(xs) > 0 and max(xs) > 10 * min(xs)


def has_tick_for_each(xs: Sequence[int]) -> bool:
    """Return whether each of these quantities has a tick on its axis."""
    return len(xs) <= _MOST_TICKS
