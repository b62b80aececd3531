"""vLLM's KV cache manager over the engine: vLLM's calls and attributes, and no state of its own.

:mod:`~kvoxide.vllm.adapter.manager` is what vLLM's scheduler gets, over a
:mod:`~kvoxide.vllm.adapter.coordinator` with the :mod:`~kvoxide.vllm.adapter.tables` of its groups
and a :mod:`~kvoxide.vllm.adapter.pool` with its :mod:`~kvoxide.vllm.adapter.queue`,
:mod:`~kvoxide.vllm.adapter.keys` and :mod:`~kvoxide.vllm.adapter.events`. What goes to the engine
as it is stands in :mod:`~kvoxide.vllm.adapter.calls`, what is logged as it runs in
:mod:`~kvoxide.vllm.adapter.retention_log`. Which of vLLM's configurations the engine
manages says :mod:`~kvoxide.vllm.adapter.support`; :mod:`~kvoxide.vllm.adapter.engine` makes it from
the :mod:`~kvoxide.vllm.adapter.arguments` of vLLM's manager.

Importing this takes the compiled module; vLLM is imported with the manager.
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
    """The class that stands in for vLLM's."""
    from kvoxide.vllm.adapter.manager import KVCacheManager

    return KVCacheManager
