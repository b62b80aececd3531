"""Lists the attributes that vLLM's own objects have. Other code may add others to them."""

import sys
from collections.abc import Iterator
from functools import cache
from types import CodeType
from typing import Final

_MODULES: Final = (
    "vllm.v1.core.block_pool",
    "vllm.v1.core.kv_cache_coordinator",
    "vllm.v1.core.kv_cache_manager",
    "vllm.v1.core.kv_cache_utils",
    "vllm.v1.core.single_type_kv_cache_manager",
)


def is_vllms(name: str) -> bool:
    """Returns whether vLLM's manager or one of its objects has or reads such an attribute."""
    return name in _names()


@cache
def _names() -> frozenset[str]:
    modules = [vars(sys.modules[name]) for name in _MODULES if name in sys.modules]
    classes = [value for module in modules for value in module.values() if isinstance(value, type)]
    return frozenset(
        name
        for cls in classes
        if cls.__module__ in _MODULES
        for attribute, value in vars(cls).items()
        for name in (attribute, *_used(value))
    )


def _used(value: object) -> Iterator[str]:
    function = getattr(value, "__func__", getattr(value, "fget", value))
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        yield from code.co_names
