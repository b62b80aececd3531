"""Offloading to CPU memory: vLLM's ``CPUOffloadingManager`` over :class:`kvoxide.HostTier`, and the
scheduler's side of vLLM's offloading connector.

In the order of its layers: each module imports only those below it.

- ``connector``: vLLM's ``OffloadingConnectorScheduler``, over any manager.
- ``jobs``: its orders to the workers.
- ``planner``: the look-ups, loads and stores of a request.
- ``manager``: vLLM's ``CPUOffloadingManager``, without state of its own.
- ``attributes``: vLLM's attributes whose values are in Rust, for code that reads them.
- ``fallback``: vLLM's own manager, once other code changes them; and a tier that failed.
- ``compatibility``: which of vLLM's managers a tier can be.

Importing this takes the compiled module; vLLM is imported with the manager.
"""

from kvoxide.vllm.offload.compatibility import bound_arguments, reasons_against

__all__ = ["bound_arguments", "connector_class", "native_class", "reasons_against"]


def native_class() -> type:
    """Return the class that replaces vLLM's ``CPUOffloadingManager``."""
    from kvoxide.vllm.offload.manager import CPUOffloadingManager

    return CPUOffloadingManager


def connector_class() -> type:
    """Return the class that replaces vLLM's ``OffloadingConnectorScheduler``."""
    from kvoxide.vllm.offload.connector import OffloadingConnectorScheduler

    return OffloadingConnectorScheduler
