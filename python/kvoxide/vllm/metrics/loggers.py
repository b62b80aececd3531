"""Adds the exporter to vLLM's statistics in an API server."""

import functools
from types import ModuleType
from typing import Any, Final

from kvoxide.vllm.environment import log_metrics_off

_MARK: Final = "_kvoxide_metrics"


def take_over(module: ModuleType) -> None:
    """Add the exporter to each ``StatLoggerManager`` that is constructed from now on."""
    manager = getattr(module, "StatLoggerManager", None)
    if manager is None or hasattr(manager.__init__, _MARK):
        return
    original = manager.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            _add_exporter(self, *args, **kwargs)
        except Exception as error:
            log_metrics_off("the API server", repr(error))

    setattr(init, _MARK, True)
    manager.__init__ = init


def _add_exporter(manager: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
    from kvoxide.vllm.metrics.exporter import Exporter

    manager.stat_loggers.append(Exporter(vllm_config, manager.engine_indexes))
