"""Sends reports with the statistics of vLLM's scheduler."""

import functools
from collections.abc import Callable
from time import monotonic
from types import ModuleType
from typing import Any, Final

from kvoxide.vllm.environment import log_metrics_off
from kvoxide.vllm.metrics.field import NAME
from kvoxide.vllm.metrics.report import Increments, as_payload
from kvoxide.vllm.metrics.sources import Sources

SECONDS: Final = 1.0
"""The time between two reports while requests run."""
MAX_SHARE: Final = 0.01
"""The most that reports take of the time, when requests end all the time."""

_ATTRIBUTE: Final = "_kvoxide_reporter"


def take_over(module: ModuleType) -> None:
    """Let each scheduler that is constructed from now on send reports."""
    scheduler = getattr(module, "Scheduler", None)
    if scheduler is None or hasattr(scheduler.__init__, _ATTRIBUTE):
        return
    original = scheduler.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        attach(self)

    setattr(init, _ATTRIBUTE, True)
    scheduler.__init__ = init


def attach(scheduler: Any) -> None:
    """Let ``scheduler`` send reports, unless it does already or makes no statistics."""
    if not getattr(scheduler, "log_stats", False) or _ATTRIBUTE in vars(scheduler):
        return
    try:
        reporter = Reporter(scheduler, Sources(scheduler))
    except Exception as error:
        log_metrics_off("the engine", repr(error))
        return
    setattr(scheduler, _ATTRIBUTE, reporter)
    scheduler.make_stats = reporter.with_report(scheduler.make_stats)


def reporter_of(scheduler: Any) -> "Reporter | None":
    """Return what sends the reports of ``scheduler``; None if nothing does."""
    found: Reporter | None = vars(scheduler).get(_ATTRIBUTE)
    return found


class Reporter:
    """Decides when a report is due, and adds it to the statistics."""

    def __init__(self, scheduler: Any, sources: Sources) -> None:
        """Begin with a report that is due."""
        self._scheduler = scheduler
        self._sources = sources
        self._increments = Increments()
        self._is_on = True
        self._due = 0.0
        self._due_when_idle = 0.0

    def with_report(self, make_stats: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``make_stats``, whose result has a report if one is due. One is due after
        :data:`SECONDS`. When no request is left, one is due at once, because the next step may come
        much later."""
        scheduler = self._scheduler

        @functools.wraps(make_stats)
        def make_stats_and_report(*args: Any, **kwargs: Any) -> Any:
            stats = make_stats(*args, **kwargs)
            now = monotonic()
            if stats is not None and (
                now >= self._due or (not scheduler.running and now >= self._due_when_idle)
            ):
                self.add_to(stats)
            return stats

        return make_stats_and_report

    def stats_now(self) -> Any:
        """Return statistics with a report, also if the scheduler cannot make any."""
        self._due = 0.0
        try:
            return self._scheduler.make_stats()
        except Exception:
            from vllm.v1.metrics.stats import SchedulerStats

            stats = SchedulerStats()
            self.add_to(stats)
            return stats

    def add_to(self, stats: Any) -> None:
        """Add a report to ``stats``. An error ends the reports, and never reaches the scheduler."""
        if not self._is_on:
            return
        began = monotonic()
        try:
            report = self._increments.since_last(self._sources.totals(began))
            setattr(stats, NAME, as_payload(report))
        except Exception as error:
            self._is_on = False
            self._due = self._due_when_idle = float("inf")
            log_metrics_off("the engine", repr(error))
            return
        ended = monotonic()
        self._due = ended + SECONDS
        # One slow report must not delay the next one for long.
        self._due_when_idle = ended + min((ended - began) / MAX_SHARE, SECONDS / 10)
