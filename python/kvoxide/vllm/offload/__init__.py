"""Offloading to CPU memory: vLLM's ``CPUOffloadingManager`` over :class:`kvoxide.HostTier`, and the
scheduler's side of vLLM's offloading connector.

In the order of its layers: each module imports only those below it.

- ``together``: lets GPU and CPU memory decide together.
- ``connector``: vLLM's ``OffloadingConnectorScheduler``, over any manager.
- ``leaving``: its jobs where GPU and CPU memory decide together.
- ``jobs``: its orders to the workers.
- ``planner``: the look-ups, loads and stores of a request.
- ``primary``: vLLM's ``CPUPrimaryTierOffloadingManager``, which other tiers read and write.
- ``manager``: vLLM's ``CPUOffloadingManager``, without state of its own.
- ``attributes``: vLLM's attributes whose values are in Rust, for code that reads them.
- ``switch``: switches to vLLM's own manager if other code changes these attributes.
- ``safe_tier``: answers like an empty tier after a fault.
- ``compatibility``: which of vLLM's managers a tier can be.

The path of a look-up, over kvoxide's tier:

1. The scheduler calls ``get_num_new_matched_tokens()``, which the connector inherits from vLLM.
2. That calls ``_lookup_complete_chunks``, which is ``Planner.look_up()``.
3. It calls ``OffloadPlanner.look_up()`` (``rust/python/src/offload/planner.rs``).
   ``rust/core/src/host/search.rs`` searches all groups with the look-ups of ``lookup.rs`` there.
   The keys and the memo of a request are in ``request_keys.rs``. The answer is the number of tokens
   beyond the hit on the GPU; ``None`` lets the scheduler ask again later.
4. After the allocation, the scheduler calls ``update_state_after_alloc()``. It gets the plan from
   ``Planner.load()`` and makes the job in ``jobs`` (``_load()``).
5. When the workers are done, vLLM calls the manager's ``complete_load()``. That calls
   ``OffloadPlanner.end()``.

The two ``_..._lookup()`` methods in ``connector`` are on this path only if another manager is
configured, or if events describe themselves.

Importing this takes the compiled module; vLLM is imported with the manager.
"""

from collections.abc import Mapping
from typing import Any, Final

from kvoxide.vllm.offload.compatibility import bound_arguments, reasons_against

__all__ = [
    "NO_REQUEST",
    "bound_arguments",
    "connector_class",
    "decide_together",
    "native_class",
    "primary_class",
    "reasons_against",
    "refuse_other_tiers",
]

NO_REQUEST: Final = "\0kvoxide"
"""The request id of jobs that belong to no request. No client can send it."""


def native_class() -> type:
    """Return the class that replaces vLLM's ``CPUOffloadingManager``."""
    from kvoxide.vllm.offload.manager import CPUOffloadingManager

    return CPUOffloadingManager


def primary_class() -> type:
    """Return the class that replaces vLLM's ``CPUPrimaryTierOffloadingManager``."""
    from kvoxide.vllm.offload.primary import CPUPrimaryTierOffloadingManager

    return CPUPrimaryTierOffloadingManager


def connector_class() -> type:
    """Return the class that replaces vLLM's ``OffloadingConnectorScheduler``."""
    from kvoxide.vllm.offload.connector import OffloadingConnectorScheduler

    return OffloadingConnectorScheduler


def decide_together(scheduler: Any) -> None:
    """Let GPU and CPU memory of vLLM's ``scheduler`` decide together, if that is asked for."""
    from kvoxide.vllm.offload import together

    together.decide_together(scheduler)


def refuse_other_tiers(extra_config: Mapping[str, Any]) -> None:
    """Raise an error if memories have to decide together, which other tiers do not allow."""
    from kvoxide.vllm.offload import together

    together.refuse_other_tiers(extra_config)
