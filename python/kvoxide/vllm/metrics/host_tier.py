"""Reads the CPU offload cache of a scheduler."""

from collections.abc import Iterator
from typing import Any, Final

from kvoxide.vllm.metrics.report import Values

NATIVE_MODULES: Final = ("kvoxide.vllm.offload.manager", "kvoxide.vllm.offload.primary")

# Numbers that vLLM's manager and kvoxide's have under the same names.
_NUM_CHUNKS: Final = "_num_chunks"


def add_host_tier(values: Values, connector: Any) -> bool:
    """Add the bytes and transfers of the CPU offload cache of ``connector``. Return whether it has
    one."""
    managers = list(_managers(connector))
    for manager, num_bytes in managers:
        num_chunks = getattr(manager, _NUM_CHUNKS)
        per_chunk = num_bytes // num_chunks if num_chunks else 0
        used = num_chunks - manager._get_num_free_chunks()
        pinned = used - manager._num_evictable_cache_chunks
        values.gauge("kvoxide_host_capacity_bytes", num_chunks * per_chunk)
        values.gauge("kvoxide_host_used_bytes", used * per_chunk)
        values.gauge("kvoxide_host_pinned_bytes", pinned * per_chunk)
        if is_native(manager):
            stored, loaded, never_loaded = manager.tier.num_transferred_chunks or (0, 0, 0)
            values.count("kvoxide_host_stored_bytes_total", stored * per_chunk)
            values.count("kvoxide_host_loaded_bytes_total", loaded * per_chunk)
            values.count("kvoxide_host_never_loaded_bytes_total", never_loaded * per_chunk)
    return bool(managers)


def is_active(connector: Any) -> bool:
    """Return whether kvoxide's CPU offload cache serves ``connector``."""
    managers = [manager for manager, _ in _managers(connector)]
    return any(is_native(manager) and not _has_failed(manager) for manager in managers)


def has_failed(connector: Any) -> bool:
    """Return whether kvoxide's CPU offload cache failed."""
    return any(_has_failed(manager) for manager, _ in _managers(connector) if is_native(manager))


def is_native(manager: Any) -> bool:
    """Return whether a manager of a CPU offload cache is kvoxide's."""
    return type(manager).__module__ in NATIVE_MODULES


def _has_failed(manager: Any) -> bool:
    return bool(getattr(manager.tier, "has_failed", False))


def _managers(connector: Any) -> Iterator[tuple[Any, int]]:
    """Yield the managers of a connector and of the connectors that it combines, each with the bytes
    that it may use. Of several tiers, yield the manager of CPU memory."""
    for part in getattr(connector, "_connectors", ()):
        yield from _managers(part)
    manager = getattr(getattr(connector, "connector_scheduler", None), "manager", None)
    manager = getattr(manager, "primary_tier", manager)
    if hasattr(type(manager), "_get_num_free_chunks"):
        yield manager, _num_bytes(connector)


def _num_bytes(connector: Any) -> int:
    transfer = getattr(getattr(connector, "_vllm_config", None), "kv_transfer_config", None)
    options = getattr(transfer, "kv_connector_extra_config", None) or {}
    return int(options.get("cpu_bytes_to_use") or 0)
