"""Takes the events of a scheduler in very little time, and lets a thread write them."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Any, Final, NamedTuple

from kvoxide.recording_format import REQUESTS, STEPS, file_name
from kvoxide.vllm.environment import log_recording_off, logger
from kvoxide.vllm.environment.settings import MAX_PRIORITY
from kvoxide.vllm.recording.files import GzipFiles
from kvoxide.vllm.recording.header import header_line
from kvoxide.vllm.recording.limit import SizeLimit, file_bytes
from kvoxide.vllm.recording.lines import EndedRequest, RequestLines, step_line
from kvoxide.vllm.recording.offloading import NO_TRANSFERS, Transfers
from kvoxide.vllm.recording.schedule import (
    CacheReset,
    Preempted,
    Schedule,
    ScheduledStep,
    TransfersEnded,
    end_line,
    reset_line,
)

FLUSH_SECONDS: Final = 0.5
MAX_WAITING: Final = 200_000
"""The most events, or steps, that may wait to be written."""

# The most scheduled steps whose output has not come. Normally there are as many as are in flight.
_MAX_SCHEDULED: Final = 1_000
_MEMBER_BYTES: Final = 1 << 20
_JOIN_SECONDS: Final = 10
_FLUSHED_SECONDS: Final = 1

_Outcomes = Sequence[tuple[str, Sequence[int]]]

TakeOutcomes = Callable[[], _Outcomes]
"""Returns the outcomes of the prompts that were admitted since the last call, by request."""


class _Admitted(NamedTuple):
    """The outcomes of prompts that were admitted."""

    outcomes: _Outcomes


class _NeverRan(NamedTuple):
    """A request ended that never ran."""

    request_id: str


_Event = (
    EndedRequest | ScheduledStep | Preempted | CacheReset | TransfersEnded | _Admitted | _NeverRan
)


class Recorder:
    """The recording of one scheduler. No error here reaches the scheduler: the first one is logged
    and ends the recording."""

    def __init__(
        self,
        folder: Path,
        header: dict[str, Any],
        limit: int | None = None,
        max_bytes: int | None = None,
        take_outcomes: TakeOutcomes = tuple,
        max_priority: int = MAX_PRIORITY,
    ) -> None:
        """Create the files in ``folder`` and start. ``limit`` is the most bytes that they may take
        together. ``take_outcomes`` is called after each step that may have admitted requests.
        ``max_priority`` is the highest priority that a request may get. Raises :class:`OSError`."""
        self._folder = folder
        self._events: deque[_Event] = deque()
        # Durations and schedules of steps.
        self._steps: deque[tuple[float, ScheduledStep]] = deque()
        # When steps began whose output has not come.
        self._scheduled: dict[int, tuple[float, ScheduledStep]] = {}
        self._last_end = 0.0
        self._has_more = False
        self._lines = RequestLines(
            header["tokens_per_id"],
            header["started"],
            max_priority,
            has_samples=bool(header.get("samples")),
        )
        self._started = header["started"]
        self._schedule = Schedule()
        self._limit = SizeLimit(limit)
        self._limit_bytes = limit
        self._has_end = False
        self._has_preempted = False
        # Whether the last event was a step without tokens.
        self._has_waited = False
        # Tokens that requests had when they were preempted. Where these are computed again, their
        # blocks are cached when the step is scheduled, although its output is in flight.
        self._preempted: dict[str, int] = {}
        # The most tokens that requests had computed when they were preempted.
        self._computed: dict[str, int] = {}
        self._transfers = Transfers()
        self._has_host_memory = header.get("host_memory") is not None
        self._take_outcomes = take_outcomes
        # Of the requests that have not ended. Only the thread uses it.
        self._outcomes: dict[str, Sequence[int]] = {}
        self._is_on = True
        self._wake = threading.Event()
        self._flushes = threading.Condition()
        self._num_asked = 0
        self._num_flushed = 0
        self._is_closing = False
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {
            kind: GzipFiles(
                _paths(folder, kind, header["rank"]),
                _headers(header, kind),
                max_bytes or file_bytes(limit),
            )
            for kind in (REQUESTS, STEPS)
        }
        self._thread = threading.Thread(target=self._run, name="kvoxide-recorder", daemon=True)
        self._thread.start()

    def request_ends(self, request: Any) -> None:
        """Record a request that is about to be freed. If it never ran, there is nothing to play."""
        try:
            if not (request.num_computed_tokens or request.num_preemptions):
                self._events.append(_NeverRan(request.request_id))
                return
            self._add(
                EndedRequest(
                    request.request_id,
                    request.arrival_time,
                    request.num_prompt_tokens,
                    request.num_tokens,
                    request.block_hashes,
                    request.status,
                    request.sampling_params,
                    getattr(request, "session_id", None),
                    getattr(request, "kv_hints", None),
                    max(_num_settled(request), self._num_computed_before(request)),
                    bool(request.skip_reading_prefix_cache),
                    self._num_offered(request) if self._has_host_memory else 0,
                )
            )
        except Exception as error:
            self._fail(error)

    def _num_computed_before(self, request: Any) -> int:
        """Return how many tokens an ended request had computed before it was preempted and, if
        these are computed again, are cached now. Forget them."""
        if request.request_id not in self._preempted:
            return 0
        num_computed: int = request.num_computed_tokens
        num_again = min(self._preempted.pop(request.request_id, 0), num_computed)
        return max(num_again, self._computed.pop(request.request_id, 0))

    def _num_offered(self, request: Any) -> int:
        """Return how many tokens an ended request offers to CPU memory in addition to its computed
        tokens, or 0. An aborted request also offers tokens in flight."""
        is_aborted = request.status.name == "FINISHED_ABORTED"
        return int(request.num_computed_tokens) if is_aborted else 0

    def step_scheduled(self, started: float, output: Any, scheduler: Any) -> None:
        """Record a step that ``scheduler`` scheduled. ``started`` is when that began, in seconds of
        :func:`time.perf_counter`."""
        try:
            connector = scheduler.connector
            if output.scheduled_new_reqs or connector is not None:
                self._note_admitted()
            has_preempted, self._has_preempted = self._has_preempted, False
            transfers = NO_TRANSFERS
            if connector is not None:
                transfers = self._transfers.begin(output, connector)
            if output.total_num_scheduled_tokens == 0:
                self._has_more = False
                # With CPU memory, the step can have cached the blocks of a load, or released the
                # blocks of a request without room. Servers repeat it while they wait, which
                # changes nothing more.
                is_first = connector is not None and not self._has_waited
                if has_preempted or transfers.are_any or is_first:
                    self._add(ScheduledStep(output, len(self._scheduled), transfers))
                    self._has_waited = True
                return
            if len(self._scheduled) >= _MAX_SCHEDULED:
                self._scheduled.clear()
            step = ScheduledStep(output, len(self._scheduled), transfers)
            self._add(step)
            self._scheduled[id(output)] = (started, step)
        except Exception as error:
            self._fail(error)

    def _note_admitted(self) -> None:
        """Record the outcomes of newly admitted prompts. These are the prompts of new requests, and
        with a connector also of requests that wait for a load."""
        if outcomes := self._take_outcomes():
            self._events.append(_Admitted(outcomes))

    def _add(self, event: _Event) -> None:
        self._has_waited = False
        self._events.append(event)

    def step_ends(self, output: Any, *, has_more: bool) -> None:
        """Record that the output of a step was processed. ``has_more`` is whether requests are
        left.

        If steps overlap, or if requests were left after the step before, a step lasts from the end
        of the step before. So its duration includes the engine's work between steps.
        """
        try:
            scheduled = self._scheduled.pop(id(output), None)
            if scheduled is None:
                return
            self._has_waited = False
            started, step = scheduled
            now = time.perf_counter()
            if not self._has_more:
                self._last_end = max(started, self._last_end)
            self._steps.append((now - self._last_end, step))
            self._last_end = now
            self.requests_left(has_more)
        except Exception as error:
            self._fail(error)

    def note_completed(self, model_runner_output: Any) -> None:
        """Note in which order the transfers end that workers report in an output."""
        try:
            self._transfers.note_completed(model_runner_output)
        except Exception as error:
            self._fail(error)

    def note_transfers(self, connector: Any) -> None:
        """Record the transfers of a connector that have ended since the last call."""
        try:
            if jobs := self._transfers.take_ended(connector):
                self._add(TransfersEnded(jobs))
        except Exception as error:
            self._fail(error)

    def preempted(self, request: Any) -> None:
        """Record a request that is about to be preempted."""
        try:
            self._has_preempted = True
            num_settled = _num_settled(request)
            self._preempted[request.request_id] = request.num_tokens
            num_before = self._computed.get(request.request_id, 0)
            self._computed[request.request_id] = max(num_settled, num_before)
            self._add(Preempted(request.request_id, request.num_tokens, num_settled))
        except Exception as error:
            self._fail(error)

    def cache_reset(self, *, preempts: bool, is_empty: bool) -> None:
        """Record a reset of the prefix cache. ``preempts`` is whether running requests were
        preempted for it, and ``is_empty`` whether the cache was emptied."""
        if is_empty:
            self._add(CacheReset(time.time(), "preempting" if preempts else "idle"))
        elif preempts:
            self._add(CacheReset(time.time(), "failed"))

    def host_reset(self) -> None:
        """Record that CPU memory was emptied."""
        if self._has_host_memory:
            self._transfers.reset()
            self._add(CacheReset(time.time(), "host"))

    def requests_left(self, has_more: bool) -> None:
        """Note whether requests are left. If none are, the engine waits, and this time belongs to
        no step. Everything is then written at once, because vLLM kills data-parallel ranks without
        warning."""
        self._has_more = has_more
        if not has_more:
            self._wake.set()

    @property
    def is_on(self) -> bool:
        """Whether the recording continues."""
        return self._is_on

    def flush(self) -> None:
        """Wait for a short time until all events so far are written."""
        with self._flushes:
            self._num_asked += 1
            ticket = self._num_asked
            self._wake.set()
            self._flushes.wait_for(
                lambda: self._num_flushed >= ticket or not self._is_on, _FLUSHED_SECONDS
            )

    def close(self) -> None:
        """Write all events so far, and end."""
        self._is_closing = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        try:
            while self._is_on:
                self._wake.wait(FLUSH_SECONDS)
                self._wake.clear()
                is_last, asked = self._is_closing, self._num_asked
                self._write_all()
                self._write_end(is_last=is_last)
                self._keep_limit()
                with self._flushes:
                    self._num_flushed = asked
                    self._flushes.notify_all()
                if is_last:
                    break
        except Exception as error:
            self._fail(error)
        finally:
            with self._flushes:
                self._is_on = False
                self._flushes.notify_all()
            for files in self._files.values():
                files.close()
            self._events.clear()
            self._steps.clear()
            self._preempted.clear()
            self._computed.clear()
            self._outcomes.clear()

    def _write_all(self) -> None:
        if max(len(self._events), len(self._steps)) > MAX_WAITING:
            raise OSError(f"more than {MAX_WAITING} lines wait to be written; the disk is too slow")
        for member in _members(self._event_lines()):
            self._write_requests(member)
        steps = (self._steps.popleft() for _ in range(len(self._steps)))
        for member in _members(starmap(step_line, steps)):
            self._files[STEPS].write(member)

    def _write_requests(self, member: bytes) -> None:
        self._files[REQUESTS].write(member)
        self._has_end = False

    def _event_lines(self) -> Iterator[bytes]:
        """Yield the lines of all events so far. A new file begins with the requests that run at
        that time."""
        files = self._files[REQUESTS]
        if self._events and files.is_full:
            files.roll()
            yield self._schedule.running_line()
        for _ in range(len(self._events)):
            event = self._events.popleft()
            if isinstance(event, ScheduledStep):
                self._schedule.step(event)
            elif isinstance(event, Preempted):
                self._schedule.preempted(event)
            elif isinstance(event, TransfersEnded):
                self._schedule.transfers_ended(event)
            elif isinstance(event, CacheReset):
                if event.kind == "host":
                    self._schedule.host_reset()
                yield self._schedule.take_line() + reset_line(event, self._started)
            elif isinstance(event, _Admitted):
                for request_id, outcomes in event.outcomes:
                    # A request that is admitted again hits its own blocks.
                    self._outcomes.setdefault(request_id, outcomes)
            elif isinstance(event, _NeverRan):
                self._outcomes.pop(event.request_id, None)
            else:
                yield self._ended_lines(event)
        yield self._schedule.take_line()

    def _ended_lines(self, ended: EndedRequest) -> bytes:
        number = self._schedule.ended(ended.request_id)
        outcomes = self._outcomes.pop(ended.request_id, None)
        return self._schedule.take_line() + self._lines.line(ended, number, outcomes)

    def _write_end(self, *, is_last: bool) -> None:
        """Write the line that says that everything is written, if nothing is under way."""
        is_idle = not (self._has_more or self._events or self._scheduled)
        if is_last or (is_idle and not self._has_end):
            self._write_requests(end_line("closed" if is_last else "idle"))
            self._has_end = True

    def _keep_limit(self) -> None:
        if self._limit.apply(*self._files.values()):
            logger.warning(
                "kvoxide: the recording in %s reached its limit of %d bytes. Its oldest files are "
                "deleted from now on. Set KVOXIDE_RECORD_LIMIT to change the limit.",
                self._folder,
                self._limit_bytes,
            )

    def _fail(self, error: Exception) -> None:
        was_on, self._is_on = self._is_on, False
        if was_on:
            reason = error if isinstance(error, OSError) else repr(error)
            log_recording_off(self._folder, reason)
            # A full disk may have room for a few more bytes.
            with suppress(Exception):
                self._files[REQUESTS].write(end_line("failed", str(reason)))


def _paths(folder: Path, kind: str, rank: int) -> Callable[[int], Path]:
    return lambda number: folder / file_name(kind, rank, os.getpid(), number)


def _headers(header: dict[str, Any], kind: str) -> Callable[[int], bytes]:
    return lambda part: header_line(header, kind, part)


def _num_settled(request: Any) -> int:
    """Return the computed tokens, without tokens in flight."""
    in_flight = getattr(request, "num_in_flight_tokens", 0)
    return int(max(request.num_computed_tokens - in_flight, 0))


def _members(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines together, up to a limit. If a line fails, yield the lines before it."""
    member: list[bytes] = []
    size = 0
    try:
        for line in lines:
            member.append(line)
            size += len(line)
            if size >= _MEMBER_BYTES:
                yield b"".join(member)
                member, size = [], 0
    except Exception:
        if size:
            yield b"".join(member)
        raise
    if size:
        yield b"".join(member)
