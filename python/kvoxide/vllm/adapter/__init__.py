"""Gives the engine the calls and attributes of vLLM's KV cache manager. It has no state of its own.

vLLM's scheduler gets a :mod:`~kvoxide.vllm.adapter.manager`. This manager has

- a :mod:`~kvoxide.vllm.adapter.coordinator` with the :mod:`~kvoxide.vllm.adapter.tables` of its
  groups, and
- a :mod:`~kvoxide.vllm.adapter.pool` with its :mod:`~kvoxide.vllm.adapter.queue`,
  :mod:`~kvoxide.vllm.adapter.keys` and :mod:`~kvoxide.vllm.adapter.events`.

:mod:`~kvoxide.vllm.adapter.calls` has the calls that the engine gets unchanged.
:mod:`~kvoxide.vllm.adapter.retention_log` logs the line per minute.
:mod:`~kvoxide.vllm.adapter.support` decides which of vLLM's configurations the engine manages.
:mod:`~kvoxide.vllm.adapter.engine` creates the engine from the
:mod:`~kvoxide.vllm.adapter.arguments` of vLLM's manager.

Importing this package needs the compiled module. It imports vLLM only with the manager.
"""

from kvoxide.vllm.adapter.arguments import bound_arguments
from kvoxide.vllm.adapter.calls import CoordinatorCalls, ManagerCalls
from kvoxide.vllm.adapter.engine import make_engine
from kvoxide.vllm.adapter.support import NATIVE_SPECS, group_specs, reasons_against

__all__ = [
    "NATIVE_SPECS",
    "CoordinatorCalls",
    "ManagerCalls",
    "bound_arguments",
    "group_specs",
    "make_engine",
    "native_class",
    "reasons_against",
]


def native_class() -> type:
    """Return the class that replaces vLLM's ``KVCacheManager``."""
    from kvoxide.vllm.adapter.manager import KVCacheManager

    return KVCacheManager
