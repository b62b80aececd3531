"""Counts and logs how the hints of requests were handled.

Hints are the actions of ``kv_hints``, the entries of ``vllm_xargs``, and the id of a session.
"""

from typing import Final

from kvoxide.vllm.environment import counters
from kvoxide.vllm.environment.log import (
    log_clipped_hint,
    log_expired_hint,
    log_malformed_hint,
    log_switched_off_hints,
    log_unknown_hint,
)

METRIC: Final = "kvoxide_hints_total"

_LOGS: Final = {
    "clipped": log_clipped_hint,
    "expired": log_expired_hint,
    "unknown": log_unknown_hint,
    "malformed": log_malformed_hint,
}


def note(hint: str, result: str, count: int, is_first: bool, details: str) -> None:
    """Count hints of one kind with one result, and log the first one of a server with this result.

    The compiled module calls this. ``hint`` and ``result`` are the values of the counter's labels.
    ``details`` is the reason for the result.
    """
    counters.add(METRIC, count, hint=hint, result=result)
    if not is_first:
        return
    if result == "ignored":
        log_switched_off_hints()
    elif log := _LOGS.get(result):
        log(details)
