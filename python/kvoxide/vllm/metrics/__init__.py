"""kvoxide's metrics in vLLM's own ``/metrics``.

The way of a value, from the engine's process to the page:

1. ``sources`` reads totals: the process's counters, the manager, the pool, the CPU offload cache
   and the outcomes of prompts (``outcomes``).
2. ``reporter`` sends them with the statistics that vLLM's scheduler makes in each step, about once
   a second. Counters travel as increments, because each step's statistics go to only one of
   several API servers.
3. ``report`` is the shape in which they travel, and ``field`` the field of vLLM's statistics that
   holds it. ``engine_process`` sends the first report when the engine starts, and the last one when
   it fails.
4. ``exporter`` adds the values up in each API server and gives them to ``prometheus_client``.
   ``killed_engines`` logs some of them when the server ends.

``definitions`` has all metrics. ``docs/reference/metrics.md`` describes them.

vLLM has a group of entry points for such exporters, ``vllm.stat_logger_plugins``. It is not used:
any entry in it switches statistics on in servers that start with ``--disable-log-stats``. It also
serves ``AsyncLLM`` alone, and vLLM drops its classes when elastic scaling adds engines. So the
exporter is added to vLLM's ``StatLoggerManager``, which exists only if statistics are on.

This package loads without vLLM, ``prometheus_client`` and the compiled module.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Final

from kvoxide.vllm.metrics import engine_process, field, killed_engines, loggers, reporter
from kvoxide.vllm.metrics.front_end import engines_report

_Callback = Callable[[ModuleType], None]

IN_API_SERVERS: Final[tuple[tuple[str, _Callback], ...]] = (
    ("vllm.v1.metrics.stats", field.add_field),
    ("vllm.v1.metrics.loggers", loggers.take_over),
    ("vllm.v1.engine.utils", killed_engines.take_over),
)
"""vLLM's modules, and the function that each needs so that a process can export metrics."""

IN_ENGINES: Final[tuple[tuple[str, _Callback], ...]] = (
    ("vllm.v1.core.sched.scheduler", reporter.take_over),
    ("vllm.v1.engine.core", engine_process.take_over),
)
"""vLLM's modules, and the function that each needs so that an engine sends metrics."""

__all__ = ["IN_API_SERVERS", "IN_ENGINES", "engines_report"]
