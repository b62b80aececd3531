"""Logs a warning and sets a gauge while vLLM's scheduler does not admit requests that wait.

In these cases the scheduler tries again in each step and logs nothing. :func:`watch` only observes;
it changes no decision, and it works over any manager of the KV cache.

:mod:`~kvoxide.vllm.plugin.standstill.watcher` looks at the scheduler about once a second.
:mod:`~kvoxide.vllm.plugin.standstill.waiting` says what each request waits for,
:mod:`~kvoxide.vllm.plugin.standstill.outside` how long waits for a connector or a grammar make no
progress, and :mod:`~kvoxide.vllm.plugin.standstill.head` whether the first request in the queue can
be admitted. :mod:`~kvoxide.vllm.plugin.standstill.blocks` counts blocks, and
:mod:`~kvoxide.vllm.plugin.standstill.episodes` logs and counts.
"""

from typing import Any

from kvoxide.vllm.plugin.standstill.watcher import Watcher

__all__ = ["watch"]


def watch(scheduler: Any) -> None:
    """Observe each request that comes to ``scheduler`` and each of its steps from now on.

    If it lacks vLLM's methods, it is not observed.
    """
    if not (hasattr(scheduler, "schedule") and hasattr(scheduler, "add_request")):
        return
    watcher = Watcher(scheduler)
    scheduler.schedule = watcher.watch_steps(scheduler.schedule)
    scheduler.add_request = watcher.watch_arrivals(scheduler.add_request)
