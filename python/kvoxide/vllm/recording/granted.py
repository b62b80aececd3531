"""Finds the priority and time to live that the server gave a request.

The server's own reader is ``rust/python/src/vllm/priorities.rs``. A test compares the two.
"""

from math import isfinite
from operator import index
from typing import Any, NamedTuple

from kvoxide.vllm.environment.settings import MAX_PRIORITY

_PRIORITY = "kvoxide_priority"
_TTL = "kvoxide_ttl"


class Granted(NamedTuple):
    """The priority, and the time to live in seconds. None means that the request got none."""

    priority: int | None = None
    ttl: float | None = None


def granted_retention(extra_args: Any, max_priority: int) -> Granted:
    """Return what a request got that claims ``extra_args``. An invalid value makes the whole claim
    invalid. ``max_priority`` is the highest priority that it may claim; 0 ignores claims."""
    if not max_priority or not isinstance(extra_args, dict):
        return Granted()
    try:
        priority = _valid_priority(extra_args[_PRIORITY]) if _PRIORITY in extra_args else None
        ttl = _valid_ttl(extra_args[_TTL]) if _TTL in extra_args else None
    except (TypeError, ValueError, OverflowError):
        return Granted()
    return Granted(None if priority is None else min(priority, max_priority), ttl)


def _valid_priority(value: Any) -> int:
    if isinstance(value, bool) or not 0 <= index(value) <= MAX_PRIORITY:
        raise ValueError(value)
    return index(value)


def _valid_ttl(value: Any) -> float:
    if isinstance(value, bool | str | bytes) or not (isfinite(value) and value > 0):
        raise ValueError(value)
    return float(value)
