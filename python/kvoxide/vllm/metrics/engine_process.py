"""Sends a report when an engine begins to serve, and another when it fails.

vLLM's scheduler makes statistics only in steps. So there are none before the first request, and
none after a step that failed.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from kvoxide.vllm.environment import log_metrics_off
from kvoxide.vllm.metrics.reporter import reporter_of

CLASSES: Final = ("EngineCoreProc", "DPEngineCoreProc")
METHODS: Final = ("run_busy_loop", "_send_engine_dead")
"""The methods of vLLM's classes before which a report is sent. A process calls them after it has
loaded plugins; the constructor is running at that time."""

_MARK: Final = "_kvoxide_metrics"


def take_over(module: ModuleType) -> None:
    """Send reports from each engine that begins to serve in this process."""
    for cls in filter(None, (getattr(module, name, None) for name in CLASSES)):
        for name in METHODS:
            method = vars(cls).get(name)
            if method is not None and not hasattr(method, _MARK):
                setattr(cls, name, _report_first(method))


def _report_first(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def report_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        _send_report(self)
        return original(self, *args, **kwargs)

    setattr(report_first, _MARK, True)
    return report_first


def _send_report(process: Any) -> None:
    """Put statistics with a report into the queue of outputs, for the first API server."""
    try:
        reporter = reporter_of(process.scheduler)
        if reporter is None or not process.log_stats:
            return
        from vllm.v1.engine import EngineCoreOutputs

        stats = reporter.stats_now()
        process.output_queue.put_nowait((0, EngineCoreOutputs(scheduler_stats=stats)))
    except Exception as error:
        log_metrics_off("the engine's start and end", repr(error))
