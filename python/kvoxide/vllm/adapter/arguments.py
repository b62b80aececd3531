"""The constructor arguments of vLLM's manager."""

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any


def bound_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of vLLM's constructor by name, defaults filled in."""
    bound = _signature().bind(None, *args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


@cache
def _signature() -> inspect.Signature:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    return inspect.signature(KVCacheManager.__init__)


def max_in_flight_tokens(arguments: Mapping[str, Any]) -> int:
    """The tokens that vLLM's manager counts with: the longest model input if it is given none."""
    given: int | None = arguments["max_in_flight_tokens"]
    longest: int = arguments["max_model_len"]
    return longest if given is None else given
