"""Leaves out of the traffic what the installed vLLM does not have."""

import dataclasses
import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeVar

T = TypeVar("T")

_ADDED: Final = {
    "num_hash_lookahead_tokens": ("__init__", "num_hash_lookahead_tokens"),
    "max_hit": ("get_computed_blocks", "max_cache_hit_length"),
    "skip_zeroing_group_ids": ("allocate_slots", "skip_zeroing_group_ids"),
}
"""Maps a field of scenarios and operations to a method of vLLM's manager and its argument. A
release after the oldest added the argument."""


@cache
def missing() -> frozenset[str]:
    """Return the fields whose arguments the installed vLLM does not take."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    return frozenset(
        field
        for field, (method, argument) in _ADDED.items()
        if argument not in inspect.signature(getattr(KVCacheManager, method)).parameters
    )


def fitted(instance: T) -> T:
    """Return a scenario or an operation whose missing fields have their defaults."""
    plain: Any = instance
    defaults = {f.name: f.default for f in dataclasses.fields(plain) if f.name in missing()}
    complete: T = dataclasses.replace(plain, **defaults) if defaults else plain
    return complete


def without_missing(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that the installed vLLM takes."""
    return {name: value for name, value in arguments.items() if name not in missing()}
