"""Finds the engine that gets all calls of a scheduler to its KV cache manager."""

from typing import Any


def observed_engine(scheduler: Any) -> Any:
    """Return the engine of kvoxide's manager, or of the shadow of vLLM's manager.

    Return None if there is none, or if vLLM's own code has taken over.
    """
    manager = vars(scheduler).get("kv_cache_manager")
    shadow = getattr(manager, "shadow", None)
    engine = getattr(manager if shadow is None else shadow.native, "engine", None)
    return None if engine is None or engine.is_replaced else engine
