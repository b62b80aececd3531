"""Looks at a scheduler about once a second, and finds standstills."""

from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from kvoxide.vllm.environment import logger
from kvoxide.vllm.plugin.standstill import blocks, head, outside
from kvoxide.vllm.plugin.standstill.episodes import Episodes
from kvoxide.vllm.plugin.standstill.head import HeadOfQueue, Idle
from kvoxide.vllm.plugin.standstill.waiting import (
    OUTSIDE_REASONS,
    Queues,
    asks_connector,
    examine,
    noting_no_answer,
)

SECONDS_BETWEEN_LOOKS: Final = 1.0
MAX_SECONDS_OF_A_STEP: Final = 30.0
"""A longer time between two steps is not counted: the scheduler was paused or had no requests."""


class Watcher:
    """Observes one scheduler."""

    def __init__(self, scheduler: Any) -> None:
        """Observe nothing yet."""
        self._scheduler = scheduler
        self._episodes = Episodes()
        self._outside = {each: outside.OutsideWaits(each) for each in OUTSIDE_REASONS}
        self._head = HeadOfQueue()
        self._never_fit: set[str] = set()
        self._step = 0
        self._time_of_step = self._next_look = self._not_counted = 0.0
        self._idle_since = 0.0
        self._num_idle_steps = 0
        self._notes_answers = False
        self._later: set[str] = set()

    def watch_steps(self, schedule: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``schedule`` with a look at the scheduler after some of its steps."""

        def watched_schedule(*args: Any, **kwargs: Any) -> Any:
            if self._notes_answers:
                output = self._noting_answers(schedule, args, kwargs)
            else:
                output = schedule(*args, **kwargs)
            self._step += 1
            now = monotonic()
            if now - self._time_of_step > MAX_SECONDS_OF_A_STEP:
                self._not_counted += now - self._time_of_step - MAX_SECONDS_OF_A_STEP
            self._time_of_step = now
            if output.total_num_scheduled_tokens or output.finished_req_ids:
                if output.scheduled_new_reqs or output.scheduled_cached_reqs.resumed_req_ids:
                    self._guarded(self._check_admitted, output)
                if self._num_idle_steps:
                    self._num_idle_steps = 0
                    self._next_look = now
                elif output.finished_req_ids and self._episodes.last:
                    self._next_look = now
            else:
                if not self._num_idle_steps:
                    self._idle_since = now - self._not_counted
                self._num_idle_steps += 1
            if now >= self._next_look:
                self._next_look = now + SECONDS_BETWEEN_LOOKS
                self._guarded(self._look, output, now - self._not_counted)
            return output

        return watched_schedule

    def watch_arrivals(self, add_request: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``add_request`` with a look at the request that it adds."""

        def watched_add_request(request: Any, *args: Any, **kwargs: Any) -> Any:
            result = add_request(request, *args, **kwargs)
            # A session with streaming input arrives again, as a part of a request that exists
            # already.
            known = self._scheduler.requests.get(request.request_id)
            if known is not None:
                self._guarded(self._warn_unless_it_fits, known)
            return result

        return watched_add_request

    def _guarded(self, look: Callable[..., None], *args: Any) -> None:
        """Call ``look``. If it raises, log the error and keep it from the scheduler."""
        try:
            look(*args)
        except Exception as error:
            logger.debug(
                "kvoxide: the check for stuck requests failed: %r. Serving continues. Please "
                "report this error.",
                error,
            )

    def _noting_answers(
        self, schedule: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._notes_answers = False
        with noting_no_answer(self._scheduler.connector) as later:
            self._later = later
            return schedule(*args, **kwargs)

    def _look(self, output: Any, now: float) -> None:
        scheduler, later, self._later = self._scheduler, self._later, set()
        queues = examine(scheduler, later)
        self._look_outside(queues, later, now)
        self._look_at_head(queues, output.total_num_scheduled_tokens, now)
        self._never_fit &= scheduler.requests.keys()
        if not self._never_fit:
            self._episodes.end("never_fits", now)
        # The answers in one step of each second are enough.
        self._notes_answers = asks_connector(scheduler)

    def _look_outside(self, queues: Queues, later: set[str], now: float) -> None:
        for reason, waits in self._outside.items():
            waits.update(self._scheduler, queues.outside.get(reason, []), later, now, self._step)
            found = waits.standstill(self._scheduler, now, self._step)
            if found is None:
                self._episodes.end(reason, now)
            else:
                self._episodes.begin(found, now)

    def _look_at_head(self, queues: Queues, num_tokens: int, now: float) -> None:
        idle = Idle(now - self._idle_since, self._num_idle_steps)
        found = self._head.standstill(self._scheduler, queues, idle, num_tokens, now, self._step)
        if found is not None and found.request.request_id in self._never_fit:
            found = None  # it has its own warning
        for reason in head.REASONS:
            if found is not None and found.reason == reason:
                self._episodes.begin(found, now)
            else:
                self._episodes.end(reason, now)

    def _check_admitted(self, output: Any) -> None:
        """Check preempted requests that come back. They may be longer than when they arrived."""
        requests = self._scheduler.requests
        for data in output.scheduled_new_reqs:  # the newer model runner has resumed ones here
            request = requests.get(data.req_id)
            if request is not None and request.num_preemptions:
                self._warn_unless_it_fits(request)
        for request_id in output.scheduled_cached_reqs.resumed_req_ids:
            request = requests.get(request_id)
            if request is not None:
                self._warn_unless_it_fits(request)

    def _warn_unless_it_fits(self, request: Any) -> None:
        needed = blocks.num_needed(self._scheduler, request, held=False)
        available = blocks.num_available(self._scheduler)
        if needed > available and request.request_id not in self._never_fit:
            self._never_fit.add(request.request_id)
            self._episodes.begin_never_fits(request, needed, available, self._time_of_step)
