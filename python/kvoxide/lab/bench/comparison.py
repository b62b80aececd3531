"""Measures every row of every layout, as times and ratios."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kvoxide.lab.bench.clock import Samples, collector_paused
from kvoxide.lab.bench.host import measure_host
from kvoxide.lab.bench.layouts import LAYOUTS, Layout
from kvoxide.lab.bench.rows import HOST_ROWS, ROWS, Row
from kvoxide.lab.bench.sides import KVOXIDE, VLLM, AdapterSide, Side, StandaloneSide, StockSide
from kvoxide.lab.bench.traffic import Effort, Traffic

_LEVEL_VARIABLE = "VLLM_LOGGING_LEVEL"


@dataclass(frozen=True)
class Measurement:
    """One row of one layout, in microseconds of CPU time. Without vLLM, ``vllm_us`` is None."""

    row: Row
    layout: str
    vllm_us: float | None
    kvoxide_us: float

    @property
    def ratio(self) -> float | None:
        """vLLM's time divided by kvoxide's. None without vLLM."""
        return None if self.vllm_us is None else self.vllm_us / self.kvoxide_us

    def with_more_rounds(self, other: "Measurement") -> "Measurement":
        """Return the fastest times of this measurement and of another of the same row, for each
        side."""
        vllm = [us for us in (self.vllm_us, other.vllm_us) if us is not None]
        return Measurement(
            self.row,
            self.layout,
            min(vllm, default=None),
            min(self.kvoxide_us, other.kvoxide_us),
        )

    @property
    def goal(self) -> float:
        """The ratio that we aim at."""
        return self.row.goals[self.layout]


def measure(
    layouts: Sequence[str],
    effort: Effort,
    *,
    with_vllm: bool,
    host: bool = False,
    on_layout: Callable[[str], None] = lambda name: None,
) -> list[Measurement]:
    """Measure the named layouts, compared with the installed vLLM or alone. Measure the host tier
    instead of the manager if asked.

    ``on_layout`` is called with the name of each layout before it begins.
    """
    measured: list[Measurement] = []
    with _quiet_vllm():
        for name in layouts:
            on_layout(name)
            measured += _measure_layout(name, effort, with_vllm=with_vllm, host=host)
    return measured


@contextmanager
def _quiet_vllm() -> Iterator[None]:
    """Make vLLM, if it is imported inside, log only errors, unless the environment sets a level."""
    if _LEVEL_VARIABLE in os.environ:
        yield
        return
    os.environ[_LEVEL_VARIABLE] = "ERROR"
    try:
        yield
    finally:
        del os.environ[_LEVEL_VARIABLE]


def _measure_layout(name: str, effort: Effort, *, with_vllm: bool, host: bool) -> list[Measurement]:
    layout = LAYOUTS[name]
    with collector_paused():
        samples = (measure_host if host else _measure_manager)(layout, effort, with_vllm)
    measured = []
    for key, row in (HOST_ROWS if host else ROWS).items():
        ours = samples.microseconds(key, KVOXIDE)
        if ours is not None:
            measured.append(Measurement(row, name, samples.microseconds(key, VLLM), ours))
    return measured


def _measure_manager(layout: Layout, effort: Effort, with_vllm: bool) -> Samples:
    classes: list[type[Side]] = [StockSide, AdapterSide] if with_vllm else [StandaloneSide]
    sizes = (layout, effort.num_blocks(layout), effort.max_model_len, effort.chunk)
    return Traffic(layout, [make(*sizes) for make in classes], effort).run()
