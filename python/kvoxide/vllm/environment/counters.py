"""Counts events of this process for metrics.

Any module adds to a counter or sets a gauge. :mod:`kvoxide.vllm.metrics` reads all of them. Values
belong to the process because one process runs one scheduler.
"""

from typing import Final, TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""The names and values of labels, in the order of their names."""

_counters: Final[dict[str, dict[Labels, float]]] = {}
_gauges: Final[dict[str, dict[Labels, float]]] = {}


def add(metric: str, amount: float = 1, **labels: str) -> None:
    """Add ``amount``, which is 0 or more, to a counter.

    The names of the metric and of its labels are the names in ``/metrics``.
    """
    values = _counters.setdefault(metric, {})
    key = tuple(sorted(labels.items()))
    values[key] = values.get(key, 0) + amount


def set_gauge(metric: str, value: float, **labels: str) -> None:
    """Set a gauge.

    The names of the metric and of its labels are the names in ``/metrics``.
    """
    _gauges.setdefault(metric, {})[tuple(sorted(labels.items()))] = value


def counters() -> dict[str, dict[Labels, float]]:
    """Return a copy of all counters: for each metric the values by labels."""
    return {metric: dict(values) for metric, values in _counters.items()}


def gauges() -> dict[str, dict[Labels, float]]:
    """Return a copy of all gauges: for each metric the values by labels."""
    return {metric: dict(values) for metric, values in _gauges.items()}
