"""Logs the end of shadow mode for engines that were killed.

By default (``--shutdown-timeout 0``), the process that started vLLM's engines kills them right
after it asks them to end, so they cannot log. This process logs what they reported until then.
"""

import functools
from collections import Counter
from types import ModuleType
from typing import Any, Final

from kvoxide.vllm.environment import (
    SHADOW_PARTS,
    log_metrics_off,
    log_shadow_agreed_until_killed,
)

_MARK: Final = "_kvoxide_metrics"
_CALLS: Final = "kvoxide_shadow_calls_total"
_DIFFERENCES: Final = "kvoxide_shadow_differences_total"


def take_over(module: ModuleType) -> None:
    """Log at each end of the engines of a ``CoreEngineProcManager`` in this process."""
    manager: Any = getattr(module, "CoreEngineProcManager", None)
    shutdown = getattr(manager, "shutdown", None)
    if shutdown is None or hasattr(shutdown, _MARK):
        return

    @functools.wraps(shutdown)
    def shutdown_and_log(self: Any, *args: Any, **kwargs: Any) -> None:
        shutdown(self, *args, **kwargs)
        if _MARK not in vars(self):
            setattr(self, _MARK, True)
            _log_agreement(self)

    setattr(shutdown_and_log, _MARK, True)
    manager.shutdown = shutdown_and_log


def _log_agreement(manager: Any) -> None:
    """Log the number of equal calls, if an engine was killed and no engine found a difference."""
    try:
        if not any(_was_killed(process.exitcode) for process in manager.processes):
            return
        calls, differences = _sums_by_part(_CALLS, _DIFFERENCES)
        for part, name in SHADOW_PARTS.items():
            if calls[part] and not differences[part]:
                log_shadow_agreed_until_killed(name, int(calls[part]))
    except Exception as error:
        log_metrics_off("the end of shadow mode", repr(error))


def _was_killed(exit_code: int | None) -> bool:
    """Return whether a process was killed. Its code may not be known yet."""
    return exit_code is None or exit_code < 0


def _sums_by_part(*metrics: str) -> list[Counter[str]]:
    """Return for each metric its value by part, over all engines and API servers."""
    from vllm.v1.metrics.prometheus import get_prometheus_registry

    sums: dict[str, Counter[str]] = {metric: Counter() for metric in metrics}
    for family in get_prometheus_registry().collect():
        for sample in family.samples:
            if sample.name in sums:
                sums[sample.name][sample.labels["part"]] += sample.value
    return list(sums.values())
