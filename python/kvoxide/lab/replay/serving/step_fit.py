"""How long an engine's steps take, found from steps that it took."""

import itertools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvoxide._core import ConfigError, StepTime

MIN_STEPS: Final = 20
_PARTS: Final = ("base", "prefill", "context", "running")
_FIELDS: Final = ("prefill_tokens", "context_tokens", "running")
_MAX_ROUNDS: Final = 50
_CLOSE: Final = 1e-6


@dataclass(frozen=True)
class StepFit:
    """Step times and how well they describe ``num_steps`` steps.

    Errors are relative to a step's duration, without sign; ``r_squared`` is the share of the
    durations' variance that is explained, at most 1. ``is_of_recording`` says whether the steps
    belong to the recording that is played, at its arrivals.
    """

    step_time: StepTime
    num_steps: int
    median_error: float
    p90_error: float
    r_squared: float
    is_of_recording: bool = False

    @property
    def text(self) -> str:
        """The fit in one line."""
        whose = "arrivals and step times are from the recording; " if self.is_of_recording else ""
        return (
            f"{whose}step times fitted to {self.num_steps:,} steps: relative error"
            f" {self.median_error:.1%} (median), {self.p90_error:.1%} (p90);"
            f" R² {self.r_squared:.3f}"
        )

    def record(self) -> dict[str, Any]:
        """The fit's quality as a JSON value."""
        return {
            "steps": self.num_steps,
            "median_relative_error": self.median_error,
            "p90_relative_error": self.p90_error,
            "r_squared": self.r_squared,
            "of_recording": self.is_of_recording,
        }


def fit_step_time(steps: NDArray[np.float64]) -> StepFit:
    """The step times of least squared relative error, none below 0.

    Errors are relative to the duration that is found, not to the measured one: where steps that are
    alike take now longer and now shorter, theirs is the mean, and all steps together take as long
    as they were measured. Relative to the measured ones, long steps would hardly count.

    ``steps`` has the shape (steps, 4): duration in seconds, prefilled tokens, tokens of context,
    requests. Raises :class:`~kvoxide._core.ConfigError` for too few steps, and for steps that do
    not tell the parts apart.
    """
    if len(steps) < MIN_STEPS:
        raise ConfigError(
            f"{len(steps)} steps are too few for a fit; it needs at least {MIN_STEPS}"
        )
    durations, work = steps[:, 0], steps[:, 1:]
    for name, column in zip(_FIELDS, work.T, strict=True):
        if column.min() == column.max():
            raise ConfigError(
                f"{name} is {column[0]:,.0f} in every step; a fit needs steps that differ in it"
            )
    parts = np.column_stack((np.ones(len(steps)), work))
    seconds = _least_relative_squares(parts, durations)
    errors = np.abs(parts @ seconds / durations - 1)
    residuals = durations - parts @ seconds
    variance = durations.var()
    return StepFit(
        StepTime(**dict(zip(_PARTS, map(float, seconds), strict=True))),
        len(steps),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        float(1 - (residuals**2).mean() / variance) if variance > 0 else 1.0,
    )


def _least_relative_squares(
    parts: NDArray[np.float64], durations: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weights and solution in turns, until they agree."""
    found, weighed = np.zeros(parts.shape[1]), durations
    for _ in range(_MAX_ROUNDS):
        before = found
        found = _non_negative_least_squares(parts / weighed[:, None], durations / weighed)
        if np.allclose(found, before, rtol=_CLOSE, atol=0):
            break
        weighed = np.maximum(parts @ found, durations.min())
    return found


def _non_negative_least_squares(
    matrix: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The exact solution: where it is 0, leaving that column out gives the same one. There are so
    few columns that every choice can be tried."""
    scales = np.abs(matrix).max(axis=0)
    scaled = matrix / scales
    best: NDArray[np.float64] = np.zeros(matrix.shape[1])
    best_error = np.inf
    for count in range(1, matrix.shape[1] + 1):
        for columns in map(list, itertools.combinations(range(matrix.shape[1]), count)):
            solution = np.linalg.lstsq(scaled[:, columns], values)[0]
            error = float(((scaled[:, columns] @ solution - values) ** 2).sum())
            if (solution >= 0).all() and error < best_error:
                best, best_error = np.zeros(matrix.shape[1]), error
                best[columns] = solution
    best /= scales
    return best
