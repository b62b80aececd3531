"""Finds out why the first request in a scheduler's queues is not admitted."""

from dataclasses import dataclass
from typing import Any, Final

from kvoxide.vllm.plugin.standstill import blocks
from kvoxide.vllm.plugin.standstill.episodes import Reason, Standstill
from kvoxide.vllm.plugin.standstill.waiting import Queues

IDLE_SECONDS: Final = 10.0
"""Requests wait, and no request got a token or ended for this long."""
IDLE_STEPS: Final = 20
"""The same limit in steps, for slow steps."""
SECONDS: Final = 60.0
"""Other requests run, and the same request waited at the head of the queue for this long."""
STEPS: Final = 100
"""The same limit in steps."""


REASONS: Final[tuple[Reason, ...]] = ("blocks", "streaming", "other")


@dataclass(frozen=True)
class Idle:
    """For how long, and in how many steps, no request got a token or ended."""

    seconds: float
    num_steps: int


class HeadOfQueue:
    """The request at the head of the queue, and since when it is there."""

    def __init__(self) -> None:
        """Start without a request."""
        self._head: Any = None
        self._since = self._checked = 0.0
        self._first_step = 0
        self._lasting: Standstill | None = None
        self._lasts_while_idle = False

    def standstill(
        self,
        scheduler: Any,
        queues: Queues,
        idle: Idle,
        num_tokens: int,
        now: float,
        step: int,
    ) -> Standstill | None:
        """Return the standstill that lasts, if there is one.

        The last step scheduled ``num_tokens`` tokens.
        """
        if queues.head is not self._head:
            self._head, self._since, self._checked, self._first_step = queues.head, now, now, step
            if not self._lasts_while_idle:
                self._lasting = None
        if idle.num_steps:
            self._lasting = self._lasting or _find_while_idle(scheduler, queues, idle)
            self._lasts_while_idle = self._lasting is not None
        elif self._lasts_while_idle:
            self._lasting, self._lasts_while_idle = None, False
        else:
            self._lasting = self._lasting or self._find(scheduler, num_tokens, now, step)
        return self._lasting

    def _find(self, scheduler: Any, num_tokens: int, now: float, step: int) -> Standstill | None:
        """Return the standstill if the same request is the head for long and could be admitted."""
        num_steps = step - self._first_step
        # In a full server this check fails again and again, and it is not cheap.
        if self._head is None or now - self._checked < SECONDS or num_steps < STEPS:
            return None
        self._checked = now
        cause = _cause_while_others_run(scheduler, self._head, num_tokens)
        if cause is None:
            return None
        return Standstill(cause.reason, self._head, now - self._since, num_steps, cause.details)


@dataclass(frozen=True)
class _Cause:
    reason: Reason
    details: str


def _find_while_idle(scheduler: Any, queues: Queues, idle: Idle) -> Standstill | None:
    request = queues.head or next(iter(scheduler.running), None)
    if request is None or idle.num_steps < IDLE_STEPS or idle.seconds < IDLE_SECONDS:
        return None
    if any(running.num_in_flight_tokens for running in scheduler.running):
        return None
    # Loads that complete, and ended requests whose blocks are sent, free blocks.
    may_change = queues.outside or any(each.is_finished() for each in scheduler.requests.values())
    if may_change and idle.seconds < SECONDS:
        return None
    cause = _cause_while_idle(scheduler, request)
    return Standstill(cause.reason, request, idle.seconds, idle.num_steps, cause.details)


def _cause_while_idle(scheduler: Any, request: Any) -> _Cause:
    idle_sessions = scheduler.num_waiting_for_streaming_input
    if request.status.name != "RUNNING" and idle_sessions and not _has_slot(scheduler):
        return _Cause(
            "streaming",
            f"{idle_sessions} sessions without input hold slots, and the server has "
            f"{_num_slots(scheduler)}; request {request.request_id} waits for a slot",
        )
    needed = blocks.num_needed(scheduler, request, held=True)
    if needed > blocks.num_free(scheduler):
        return _Cause("blocks", blocks.describe_need(scheduler, request, needed))
    return _unknown_cause(scheduler, request, needed)


def _cause_while_others_run(scheduler: Any, request: Any, num_tokens: int) -> _Cause | None:
    """Return why ``request`` is not admitted although it could be. Return None if it waits until
    running requests end, as in a full server."""
    if not _has_slot(scheduler) or num_tokens >= scheduler.max_num_scheduled_tokens:
        return None
    needed = blocks.num_needed(scheduler, request, held=True)
    if needed > blocks.num_available(scheduler) - _num_stuck(scheduler, request):
        return _Cause("blocks", blocks.describe_need(scheduler, request, needed))
    if request.has_encoder_inputs or needed > _num_unreserved(scheduler):
        return None
    return _unknown_cause(scheduler, request, needed)


def _has_slot(scheduler: Any) -> bool:
    """Return whether the scheduler may run one more request."""
    taken = len(scheduler.running) + scheduler.num_waiting_for_streaming_input
    return bool(taken < _num_slots(scheduler))


def _num_slots(scheduler: Any) -> int:
    return int(scheduler.max_num_active_reqs)


def _num_stuck(scheduler: Any, request: Any) -> int:
    """Return how many blocks ``request`` and requests that do not run hold. No running request can
    free them for it, nor can a load that will complete."""
    stuck = frozenset[int]()
    for other in scheduler.requests.values():
        if other.status.name not in ("RUNNING", "WAITING_FOR_REMOTE_KVS"):
            stuck |= blocks.held_by(scheduler, other)
    return len(stuck | blocks.held_by(scheduler, request))


def _num_unreserved(scheduler: Any) -> int:
    """Return how many blocks are free and not kept for others."""
    manager = scheduler.kv_cache_manager
    reserved = scheduler._inflight_prefill_reserved_blocks() + getattr(
        manager, "watermark_blocks", 0
    )
    return blocks.num_free(scheduler) - int(reserved)


def _unknown_cause(scheduler: Any, request: Any, needed: int) -> _Cause:
    return _Cause(
        "other",
        f"request {request.request_id} ({request.status.name}) gets no tokens; it "
        f"needs {needed} more blocks, and {blocks.num_free(scheduler)} are free",
    )
