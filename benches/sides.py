"""The two sides of a comparison: ``KVOXIDE=off`` and ``KVOXIDE=require``."""

import os
from typing import Any


def require_side(engine: Any) -> None:
    """Raise :class:`SystemExit` if ``KVOXIDE`` had no effect on vLLM's engine in this process."""
    mode, scheduler = os.environ["KVOXIDE"], engine.engine_core.engine_core.scheduler
    if (found := class_of_other_side(mode, scheduler)) is not None:
        raise SystemExit(f"KVOXIDE={mode} has no effect, vLLM uses {found}")


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
