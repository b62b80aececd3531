"""vLLM's ``CPUOffloadingManager`` over :class:`kvoxide.HostTier`: its calls and attributes, and no
state of its own.

:mod:`~kvoxide.vllm.host.manager` is what vLLM's offloading connector gets, with the
:mod:`~kvoxide.vllm.host.views` of what is inside for those who look. What it cannot stand in for
says :mod:`~kvoxide.vllm.host.support`.

Importing this takes the compiled module; vLLM is imported with the manager.
"""

from kvoxide.vllm.host.support import bound_arguments, reasons_against

__all__ = ["bound_arguments", "native_class", "reasons_against"]


def native_class() -> type:
    """The class that stands in for vLLM's."""
    from kvoxide.vllm.host.manager import CPUOffloadingManager

    return CPUOffloadingManager
