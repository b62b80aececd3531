"""The error of times from fitted steps, and its effect on targets."""

from dataclasses import dataclass
from typing import Final

from kvoxide.lab.plan.target import Metric, Target
from kvoxide.lab.replay.serving import StepFit

MAX_ERROR: Final = 0.25
"""The highest median relative error of steps at which times can be judged."""


@dataclass(frozen=True)
class Uncertainty:
    """The relative error of times, 0 if step times were not fitted."""

    error: float = 0.0

    @classmethod
    def of(cls, fit: StepFit | None) -> "Uncertainty":
        """Return the median error of a fit."""
        return cls(0.0 if fit is None else fit.median_error)

    @property
    def is_too_large(self) -> bool:
        """Whether the error is too large to judge times."""
        return self.error > MAX_ERROR

    def applies_to(self, metric: Metric) -> bool:
        """Return whether the error changes a metric: it is computed from times, and the times are
        fitted."""
        return metric.is_time and self.error > 0

    def is_met(self, target: Target, value: float | None) -> bool | None:
        """Return whether a figure is within a limit, or None if the error leaves that open."""
        if value is None or not self.applies_to(target.metric):
            return target.is_met(value)
        if self.is_too_large:
            return None
        least, most = (
            target.is_met(self._worst(target, value)),
            target.is_met(self._best(target, value)),
        )
        return least if least == most else None

    def margin(self, target: Target, value: float | None) -> float | None:
        """Return the margin of a figure, less the error. Return None if there is no figure, or if
        the error is too large."""
        if value is None or not self.applies_to(target.metric):
            return target.margin(value)
        return None if self.is_too_large else target.margin(self._worst(target, value))

    def _worst(self, target: Target, value: float) -> float:
        return (
            value * (1 + self.error) if target.metric.less_is_better else value / (1 + self.error)
        )

    def _best(self, target: Target, value: float) -> float:
        return (
            value / (1 + self.error) if target.metric.less_is_better else value * (1 + self.error)
        )


EXACT: Final = Uncertainty()
