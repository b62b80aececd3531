"""Check which of vLLM's host tiers :class:`kvoxide.HostTier` can replace."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_CHUNKS: Final = 2**31
_POLICIES: Final = {"lru": "LRUCachePolicy", "arc": "ARCCachePolicy"}


def bound_arguments(stock: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of vLLM's class ``stock`` by name, with its defaults. Arguments
    that only its bases take have the defaults of the bases. Raises ``TypeError`` for arguments that
    it does not take."""
    bound = inspect.signature(stock.__init__).bind(None, *args, **kwargs)  # type: ignore[misc]
    bound.apply_defaults()
    _, *arguments = bound.arguments.items()
    return _defaults_of_bases(stock) | dict(arguments)


def own_arguments(cls: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those arguments that the constructor of ``cls`` takes."""
    names = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    return {name: value for name, value in arguments.items() if name in names}


def _defaults_of_bases(stock: type) -> dict[str, Any]:
    parameters = [
        parameter
        for base in reversed(stock.__mro__[1:-1])
        for parameter in inspect.signature(base.__init__).parameters.values()  # type: ignore[misc]
    ]
    empty = inspect.Parameter.empty
    return {one.name: one.default for one in parameters if one.default is not empty}


def reasons_against(arguments: Mapping[str, Any]) -> list[str]:
    """Why a manager with these arguments cannot be kvoxide's; empty if it can."""
    return [*_policy_reasons(arguments), *_number_reasons(arguments)]


def _policy_reasons(arguments: Mapping[str, Any]) -> Iterator[str]:
    name = arguments["cache_policy"]
    if name not in _POLICIES:
        yield f"cache policy {name!r} is not supported; supported: {', '.join(_POLICIES)}"
        return
    from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory

    found = CachePolicyFactory.get_cache_policy_cls(name)
    own = (f"vllm.v1.kv_offload.cpu.policies.{name}", _POLICIES[name])
    if (found.__module__, found.__qualname__) != own:
        yield f"cache policy {name!r} is {found.__module__}.{found.__qualname__}, not vLLM's own"


def _number_reasons(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name in ("num_chunks", "store_threshold", "max_tracker_size"):
        value = arguments[name]
        if type(value) is not int or not 0 <= value <= MAX_CHUNKS:
            yield f"{name} is {value!r}; it must be an int from 0 to {MAX_CHUNKS}"
