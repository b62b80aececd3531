"""Hit share over a quantity and over a trace, per policy: what the tables and the plots show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvoxide.lab.replay.input import UNLIMITED
from kvoxide.lab.replay.run import Outcome

# The moving hit share is taken over this part of the trace.
_MOVING_SHARE: Final = 0.05


@dataclass(frozen=True)
class HitShares:
    """Hit shares (0 to 1) per policy, in the order of ``xs``; ``x_name`` is their quantity. A run
    that was not done has nan."""

    x_name: str
    xs: list[int]
    by_policy: dict[str, list[float]]


def over_pool_size(outcomes: Sequence[Outcome], sizes: Sequence[int]) -> HitShares:
    """Hit share over pool sizes in blocks; the unlimited pool's is the same for all sizes."""
    shares = {(o.name, o.run.blocks): o.hit_share for o in outcomes}
    names = dict.fromkeys(o.name for o in outcomes)
    by_policy = {
        name: [shares.get((name, None if name == UNLIMITED else size), nan) for size in sizes]
        for name in names
    }
    return HitShares("pool size in blocks", list(sizes), by_policy)


def over_quantity(
    outcomes: Sequence[Outcome], quantity: Callable[[Outcome], int], xs: Sequence[int], x_name: str
) -> HitShares:
    """Hit share over ``xs``, the values of ``quantity`` that every policy and the unlimited pool
    were to have runs for."""
    by_policy: dict[str, list[float]] = {}
    for outcome in outcomes:
        shares = by_policy.setdefault(outcome.name, [nan] * len(xs))
        shares[xs.index(quantity(outcome))] = outcome.hit_share
    return HitShares(x_name, list(xs), by_policy)


@dataclass(frozen=True)
class HitCourse:
    """The hit share over a trace after each of its ``requests`` (from 1): of all so far, and of the
    last twentieth of the trace."""

    requests: NDArray[np.int64]
    so_far: NDArray[np.float64]
    moving: NDArray[np.float64]


def over_trace(outcome: Outcome) -> HitCourse:
    """The course of a run's hit share, without the requests that only warm the cache."""
    rows = outcome.per_request[outcome.run.workload.report_from :]
    served = rows[rows[:, 2] >= 0]
    prompt, hit = served[:, 0], served[:, 2]
    window = max(1, round(len(served) * _MOVING_SHARE))
    return HitCourse(
        np.arange(1, len(served) + 1),
        np.cumsum(hit) / np.maximum(1, np.cumsum(prompt)),
        _moving_sum(hit, window) / np.maximum(1, _moving_sum(prompt, window)),
    )


def _moving_sum(values: NDArray[np.int64], window: int) -> NDArray[np.int64]:
    """The sum of each value and up to ``window - 1`` before it."""
    sums = np.concatenate(([0], np.cumsum(values)))
    ends = np.arange(1, len(values) + 1)
    difference: NDArray[np.int64] = sums[ends] - sums[np.maximum(0, ends - window)]
    return difference
