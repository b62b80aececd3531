"""Turns the schedule of a scheduler into lines: which requests ran in which step.

Most steps are plain: each running request computes one token. Only other steps are written in full.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from kvoxide.vllm.recording.offloading import NewTransfers


class ScheduledStep:
    """The schedule of one step. ``tokens`` are in the order of the scheduler. ``starts`` are the
    computed tokens of ``cached``, the requests that ran before. ``admitted`` are other requests,
    and ``admitted_starts`` their computed tokens. ``num_tokens`` are all tokens of the step, and
    ``num_drafted`` the tokens of requests with drafts. ``num_in_flight`` is the number of earlier
    steps whose output had not come. ``transfers`` are those from and to CPU memory that begin.

    The scheduler waits while it is created, so it only copies. The model runner may change its
    input."""

    __slots__ = (
        "admitted",
        "admitted_starts",
        "cached",
        "num_drafted",
        "num_in_flight",
        "num_tokens",
        "starts",
        "tokens",
        "transfers",
    )

    def __init__(self, output: Any, num_in_flight: int, transfers: NewTransfers) -> None:
        """Copy the schedule from a scheduler's output."""
        cached, new = output.scheduled_cached_reqs, output.scheduled_new_reqs
        self.tokens: dict[str, int] = output.num_scheduled_tokens.copy()
        self.cached: list[str] = [*cached.req_ids]
        self.starts: list[int] = [*cached.num_computed_tokens]
        self.admitted: list[str] = [each.req_id for each in new]
        self.admitted_starts: list[int] = [each.num_computed_tokens for each in new]
        self.num_tokens: int = output.total_num_scheduled_tokens
        drafts = output.scheduled_spec_decode_tokens
        self.num_drafted = len(drafts) + sum(map(len, drafts.values())) if drafts else 0
        self.num_in_flight = num_in_flight
        self.transfers = transfers

    def num_single(self) -> int:
        """Return how many requests compute one token."""
        return list(self.tokens.values()).count(1)


class TransfersEnded(NamedTuple):
    """Transfers from or to CPU memory have ended."""

    jobs: Sequence[int]


class Preempted(NamedTuple):
    """A request was preempted, by the next step or for a reset of the cache. It had ``num_tokens``
    tokens. ``num_computed_tokens`` leaves out tokens in flight."""

    request_id: str
    num_tokens: int
    num_computed_tokens: int


class CacheReset(NamedTuple):
    """A reset at ``time``, in seconds since the epoch. ``kind`` says what it did:

    - ``idle``: the prefix cache was emptied, and no request was running.
    - ``preempting``: running requests were preempted, and the prefix cache was emptied.
    - ``failed``: running requests were preempted, but blocks were still in use.
    - ``host``: CPU memory was emptied.
    """

    time: float
    kind: str


class _Running:
    """A running request: its number, and its computed tokens less the number of steps so far."""

    __slots__ = ("base", "number")

    def __init__(self, number: int, base: int) -> None:
        self.number = number
        self.base = base


class Schedule:
    """Numbers requests and collects the events of the schedule."""

    def __init__(self) -> None:
        """Start with no running request."""
        self._numbers: dict[str, int] = {}
        self._next_number = 0
        self._running: dict[str, _Running] = {}
        self._names: list[str] = []
        self._num_steps = 0
        self._computed = 0
        self._num_in_flight: int | None = 0
        self._events: list[Any] = []
        self._transfers: dict[int, tuple[int, int]] = {}
        # The steps in which stores that belong to no request began.
        self._leaving: dict[int, int] = {}
        # Requests that have ended since the last step.
        self._ended: dict[str, int] = {}

    def step(self, step: ScheduledStep) -> None:
        """Add a step."""
        if step.num_in_flight != self._num_in_flight:
            self._num_in_flight = step.num_in_flight
            self._events.append({"in_flight": step.num_in_flight})
        self._begin(step.transfers)
        self._num_steps += 1
        if self._is_plain(step):
            self._computed += len(self._names)
            if self._events and isinstance(self._events[-1], int):
                self._events[-1] += 1
            else:
                self._events.append(1)
            return
        self._events.append(self._differences(step))

    def transfers_ended(self, ended: TransfersEnded) -> None:
        """Add the end of transfers."""
        jobs = (self._transfers.pop(job, None) for job in ended.jobs)
        if transferred := [list(job) for job in jobs if job is not None]:
            self._events.append({"transferred": transferred})
        steps = (self._leaving.pop(job, None) for job in ended.jobs)
        if stored := [self._num_steps - step for step in steps if step is not None]:
            self._events.append({"stored": stored})

    def host_reset(self) -> None:
        """Forget the stores in progress, which have no end after a reset of CPU memory."""
        self._leaving.clear()
        loads = {job: it for job, it in self._transfers.items() if it[1] == 0}
        self._transfers = loads

    def _begin(self, transfers: NewTransfers) -> None:
        """Note transfers: for each the number of its request, and 1 for a store. Add the loads."""
        loading = [self._number(name) for _, name in transfers.loads]
        for (job, _), number in zip(transfers.loads, loading, strict=True):
            self._transfers[job] = (number, 0)
        ended_numbers = [self._ended[name] for name in transfers.ended if name in self._ended]
        if len(ended_numbers) > 1 or (transfers.ended and not ended_numbers):
            self._events.append({"finished": ended_numbers})
        for job, name in transfers.stores:
            ended = self._ended.get(name)
            self._transfers[job] = (self._number(name) if ended is None else ended, 1)
        self._ended.clear()
        if loading:
            self._events.append({"loading": loading})
        if transfers.num_asked:
            self._events.append({"asked": transfers.num_asked})
        if transfers.leaving:
            self._leaving.update(dict.fromkeys(transfers.leaving, self._num_steps + 1))
            self._events.append({"storing": len(transfers.leaving)})

    def preempted(self, preempted: Preempted) -> None:
        """Add a request that the next step preempts."""
        running = self._running.get(preempted.request_id)
        if running is not None:
            event = {
                "preempted": running.number,
                "tokens": preempted.num_tokens,
                "computed": preempted.num_computed_tokens,
            }
            self._events.append(event)
            self._leave(preempted.request_id)

    def ended(self, request_id: str) -> int:
        """End a request, and return its number."""
        self._leave(request_id)
        number = self._numbers.pop(request_id, None)
        if number is None:
            return self._new_number()
        self._ended[request_id] = number
        return number

    def take_line(self) -> bytes:
        """Return the line of all events since the last call, empty if there were none."""
        if not self._events:
            return b""
        events, self._events = self._events, []
        return json.dumps({"schedule": events}, separators=(",", ":")).encode() + b"\n"

    def running_line(self) -> bytes:
        """Return the line of the requests that run now. The next step repeats what is in flight,
        for readers that begin here."""
        self._num_in_flight = None
        running = [[r.number, r.base + self._num_steps] for r in self._running.values()]
        return json.dumps({"running": running}, separators=(",", ":")).encode() + b"\n"

    def _is_plain(self, step: ScheduledStep) -> bool:
        tokens = step.tokens
        return (
            not step.admitted
            and len(tokens) == len(self._names)
            and sum(step.starts) == self._computed
            and step.num_single() == len(tokens)
            and list(tokens) == self._names
        )

    def _differences(self, step: ScheduledStep) -> list[list[int]]:
        starts = dict(zip(step.cached, step.starts, strict=True))
        starts.update(zip(step.admitted, step.admitted_starts, strict=True))
        before = self._num_steps - 1
        differences = []
        for name, running in self._running.items():
            if name not in step.tokens:
                running.base -= 1
                differences.append([running.number, 0])
        for name, num_tokens in step.tokens.items():
            start = starts[name]
            known = self._running.get(name)
            if known is None:
                number = self._number(name)
                self._running[name] = _Running(number, start + num_tokens - self._num_steps)
                differences.append([number, num_tokens, start])
            elif start != known.base + before:
                differences.append([known.number, num_tokens, start])
                known.base = start + num_tokens - self._num_steps
            elif num_tokens != 1:
                differences.append([known.number, num_tokens])
                known.base += num_tokens - 1
        self._note_running()
        return differences

    def _leave(self, request_id: str) -> None:
        if self._running.pop(request_id, None) is not None:
            self._note_running()

    def _note_running(self) -> None:
        self._names = list(self._running)
        bases = (running.base for running in self._running.values())
        self._computed = sum(bases) + self._num_steps * len(self._running)

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._new_number()
        return number

    def _new_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1


def reset_line(reset: CacheReset, started: float) -> bytes:
    """Return the line of a reset; ``started`` is in seconds since the epoch."""
    timestamp = max(0.0, (reset.time - started) * 1e3)
    return b'{"reset":"%b","timestamp":%.3f}\n' % (reset.kind.encode(), timestamp)


def end_line(end: str, reason: str | None = None) -> bytes:
    """Return the line that says that nothing is left to write."""
    return json.dumps({"end": end} | ({"reason": reason} if reason else {})).encode() + b"\n"
