"""The two sides of a comparison: ``KVOXIDE=off`` and ``KVOXIDE=require``."""

from typing import Any


def class_of_other_side(mode: str, scheduler: Any) -> str | None:
    """Return the class of a part of vLLM's scheduler on which ``KVOXIDE=mode`` had no effect; None
    if there is none. Without an installed kvoxide, vLLM does not find its plugin."""
    parts = [scheduler.kv_cache_manager]
    if scheduler.connector is not None:
        connector = scheduler.connector.connector_scheduler
        parts += [connector, connector.manager]
    for part in parts:
        name = f"{type(part).__module__}.{type(part).__qualname__}"
        if name.startswith("kvoxide.") != (mode == "require"):
            return name
    return None
