"""How far off times may be that come from fitted steps, and what targets can tell then."""

from dataclasses import dataclass
from typing import Final

from kvoxide.plan.target import Metric, Target
from kvoxide.replay.serving import StepFit

MAX_ERROR: Final = 0.25
"""The highest median relative error of steps at which times can be judged."""


@dataclass(frozen=True)
class Uncertainty:
    """The relative error of times, 0 where step times were not fitted."""

    error: float = 0.0

    @classmethod
    def of(cls, fit: StepFit | None) -> "Uncertainty":
        """Return the median error of a fit."""
        return cls(0.0 if fit is None else fit.median_error)

    @property
    def is_too_large(self) -> bool:
        """Whether times tell nothing."""
        return self.error > MAX_ERROR

    def applies_to(self, metric: Metric) -> bool:
        """Return whether a figure is made of times."""
        return metric.is_time and self.error > 0

    def is_met(self, target: Target, value: float | None) -> bool | None:
        """Return whether a figure is within a limit; None where the error leaves that open."""
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
        """Return the margin of a figure, less the error; None without a figure, and where nothing
        can be told."""
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
