"""Counts and logs what becomes of the priorities that clients claim with ``kvoxide_priority``."""

from typing import Final

from kvoxide.vllm.environment import counters
from kvoxide.vllm.environment.log import (
    log_ignored_priority,
    log_lowered_priority,
    log_switched_off_priority,
)

METRIC: Final = "kvoxide_priority_requests_total"


def note(result: str, is_first: bool, max_priority: int, details: str) -> None:
    """Count a request that claims a priority, and log the first one of a server with this result.

    The compiled module calls this. ``result`` is the value of the counter's label. ``details`` is
    the reason why a claim is invalid, or the priority that was claimed.
    """
    counters.add(METRIC, result=result)
    if not is_first:
        return
    match result:
        case "invalid":
            log_ignored_priority(details)
        case "lowered":
            log_lowered_priority(details, max_priority)
        case "ignored":
            log_switched_off_priority()
