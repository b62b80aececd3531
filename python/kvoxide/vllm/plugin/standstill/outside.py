"""Measures how long waits for a connector or a grammar have made no progress."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, assert_never

from kvoxide.vllm.plugin.standstill.episodes import Standstill
from kvoxide.vllm.plugin.standstill.waiting import OutsideReason, outside_reason

SECONDS: Final = 60.0
"""No request that waits for the same thing has got it for this long."""
STEPS: Final = 20
"""The same limit in steps, for slow steps."""
REQUEST_SECONDS: Final = 600.0
"""One request has waited for this long, even if others got what they waited for."""

_ABORTED: Final = ("FINISHED_ABORTED", "FINISHED_ERROR")


@dataclass
class _Wait:
    request: Any
    since: float


class OutsideWaits:
    """The requests that wait for one thing, since when each waits, and since when none got it."""

    def __init__(self, reason: OutsideReason) -> None:
        """Start without requests."""
        self._reason: OutsideReason = reason
        self._waits: dict[str, _Wait] = {}
        self._since = 0.0
        self._first_step = 0

    def update(
        self, scheduler: Any, requests: list[Any], later: Collection[str], now: float, step: int
    ) -> None:
        """Note the requests that wait now. ``later`` is as in
        :func:`~kvoxide.vllm.plugin.standstill.waiting.examine`."""
        before = self._waits
        self._waits = {
            request.request_id: before.get(request.request_id) or _Wait(request, now)
            for request in requests
        }
        left = [wait.request for name, wait in before.items() if name not in self._waits]
        if not before or any(self._has_got_it(scheduler, request, later) for request in left):
            self._since, self._first_step = now, step

    def _has_got_it(self, scheduler: Any, request: Any, later: Collection[str]) -> bool:
        is_aborted = request.status.name in _ABORTED
        return not is_aborted and outside_reason(scheduler, request, later) != self._reason

    def standstill(self, scheduler: Any, now: float, step: int) -> Standstill | None:
        """Return the standstill that lasts, if there is one."""
        if not self._waits or step - self._first_step < STEPS:
            return None
        first = min(self._waits.values(), key=lambda wait: wait.since)
        waited = now - first.since
        since_progress = now - self._since
        if since_progress < SECONDS and waited < REQUEST_SECONDS:
            return None
        seconds = since_progress if since_progress >= SECONDS else waited
        details = _describe(self._reason, scheduler, len(self._waits), first.request, waited)
        return Standstill(self._reason, first.request, seconds, step - self._first_step, details)


def _describe(
    reason: OutsideReason, scheduler: Any, num_requests: int, first: Any, seconds: float
) -> str:
    connector = type(scheduler.connector).__name__
    match reason:
        case "remote_load":
            what = f"KV that {connector} loads"
        case "connector_later":
            what = f"{connector}, which gives no answer about its KV"
        case "grammar":
            what = "a grammar that is not compiled"
        case other:
            assert_never(other)
    requests = "1 request waits" if num_requests == 1 else f"{num_requests} requests wait"
    return f"{requests} for {what}; request {first.request_id} has waited for {seconds:.0f} s"
