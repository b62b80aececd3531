"""Measures ratios of vLLM's time to kvoxide's, with further rounds for ratios that look slow."""

import platform
from collections.abc import Callable, Sequence
from typing import Final

from kvoxide.lab.bench.comparison import Measurement, measure
from kvoxide.lab.bench.traffic import Effort

from .baseline import Values

CEILING = 10
"""A call that is this much faster than its goal takes so little time that its ratio is noise."""

FULL_EFFORT: Final = Effort()

Measurements = dict[tuple[str, str], Measurement]


def tools(vllm: str) -> dict[str, str]:
    """Return what the ratios depend on in addition to the code."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"vllm": vllm, "python": python, "machine": platform.machine()}


def measure_rows(layouts: Sequence[str], effort: Effort) -> Measurements:
    """Measure every row of these layouts once."""
    found = measure(layouts, effort, with_vllm=True)
    return {(m.layout, m.row.key): m for m in found}


def measure_until(
    layouts: Sequence[str],
    slow_layouts: Callable[[Values], Sequence[str]],
    retries: int,
    first_effort: Effort = FULL_EFFORT,
) -> Measurements:
    """Measure every row. ``slow_layouts`` names slow layouts by the ratios so far. These are
    measured again, with full effort, and count with their fastest rounds."""
    found = measure_rows(layouts, first_effort)
    for _ in range(retries):
        again = list(slow_layouts(values_of(found)))
        if not again:
            break
        for key, more in measure_rows(again, FULL_EFFORT).items():
            found[key] = found[key].with_more_rounds(more)
    return found


def values_of(found: Measurements) -> Values:
    """Return the ratios alone, up to :data:`CEILING` times their goal."""
    values: Values = {}
    for (layout, row), measurement in found.items():
        if measurement.ratio is None:
            raise ValueError("there is no ratio without vLLM")
        ratio = min(measurement.ratio, CEILING * measurement.goal)
        values.setdefault(layout, {})[row] = round(ratio, 2)
    return values
