"""vLLM's ``CPUOffloadingManager`` over :class:`kvoxide.HostTier`: its calls and attributes, and no
state of its own; and the scheduler's side of vLLM's offloading connector.

:mod:`~kvoxide.vllm.host.manager` is what the connector gets, with the
:mod:`~kvoxide.vllm.host.views` of what is inside for those who look, and
:mod:`~kvoxide.vllm.host.handed_over` for those who change it. What it cannot stand in for
says :mod:`~kvoxide.vllm.host.support`. :mod:`~kvoxide.vllm.host.connector` is over any manager;
:mod:`~kvoxide.vllm.host.stores` and :mod:`~kvoxide.vllm.host.loads` are what it stores and loads,
:mod:`~kvoxide.vllm.host.sources` from where, :mod:`~kvoxide.vllm.host.request_state` what it knows
of a request, :mod:`~kvoxide.vllm.host.keys` what stands in for keys that are in Rust,
:mod:`~kvoxide.vllm.host.blocks` for blocks.

Importing this takes the compiled module; vLLM is imported with the manager.
"""

from kvoxide.vllm.host.support import bound_arguments, reasons_against

__all__ = ["bound_arguments", "connector_class", "native_class", "reasons_against"]


def native_class() -> type:
    """The class that stands in for vLLM's."""
    from kvoxide.vllm.host.manager import CPUOffloadingManager

    return CPUOffloadingManager


def connector_class() -> type:
    """The class that stands in for vLLM's ``OffloadingConnectorScheduler``."""
    from kvoxide.vllm.host.connector import OffloadingConnectorScheduler

    return OffloadingConnectorScheduler
