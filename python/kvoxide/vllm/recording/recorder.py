"""Takes what a scheduler tells, in next to no time, and lets a thread write it."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from kvoxide.recording_format import REQUESTS, STEPS, file_name
from kvoxide.vllm.environment import logger
from kvoxide.vllm.recording.files import MAX_BYTES, GzipFiles
from kvoxide.vllm.recording.header import header_line
from kvoxide.vllm.recording.lines import EndedRequest, RequestLines, Step, step_line

FLUSH_SECONDS: Final = 0.5
MAX_WAITING: Final = 200_000
"""Requests, or steps, that may wait to be written."""

# Steps that were scheduled and whose output has not come; there are as many as fly.
_MAX_SCHEDULED: Final = 1_000
_MEMBER_BYTES: Final = 1 << 20
_JOIN_SECONDS: Final = 10
_FLUSHED_SECONDS: Final = 1

_Entry = TypeVar("_Entry")


class Recorder:
    """The recording of one scheduler. Nothing that goes wrong here reaches the scheduler: the first
    error is logged, and ends the recording."""

    def __init__(self, folder: Path, header: dict[str, Any], max_bytes: int = MAX_BYTES) -> None:
        """Create the files in ``folder`` and start. Raises :class:`OSError`."""
        self._folder = folder
        self._requests: deque[EndedRequest] = deque()
        self._steps: deque[Step] = deque()
        self._scheduled: dict[int, tuple[float, int, int, int]] = {}
        self._last_end = 0.0
        self._has_more = False
        self._lines = RequestLines(header["tokens_per_id"], header["started"])
        self._is_on = True
        self._wake = threading.Event()
        self._flushes = threading.Condition()
        self._num_asked = 0
        self._num_flushed = 0
        self._is_closing = False
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {
            kind: GzipFiles(
                _paths(folder, kind, header["rank"]), header_line(header, kind), max_bytes
            )
            for kind in (REQUESTS, STEPS)
        }
        self._thread = threading.Thread(target=self._run, name="kvoxide-recorder", daemon=True)
        self._thread.start()

    def request_ends(self, request: Any) -> None:
        """A request is about to be freed. One that never ran leaves nothing to play."""
        try:
            if not (request.num_computed_tokens or request.num_preemptions):
                return
            self._requests.append(
                EndedRequest(
                    request.arrival_time,
                    request.num_prompt_tokens,
                    request.num_tokens,
                    request.block_hashes,
                    request.status,
                    request.sampling_params,
                )
            )
        except Exception as error:
            self._fail(error)

    def step_scheduled(self, started: float, output: Any) -> None:
        """A step was scheduled; ``started`` is when that began, in seconds of
        :func:`time.perf_counter`."""
        try:
            if output.total_num_scheduled_tokens == 0:
                self._has_more = False
                return
            if len(self._scheduled) >= _MAX_SCHEDULED:
                self._scheduled.clear()
            self._scheduled[id(output)] = (started, *_work(output))
        except Exception as error:
            self._fail(error)

    def step_ends(self, output: Any, *, has_more: bool) -> None:
        """The output of a step was taken in; ``has_more`` is whether requests are left. A step
        lasts from the end of the one before where they overlap, and where requests were left then:
        what the engine does between its steps takes their time too."""
        try:
            scheduled = self._scheduled.pop(id(output), None)
            if scheduled is None:
                return
            started, *work = scheduled
            now = time.perf_counter()
            if not self._has_more:
                self._last_end = max(started, self._last_end)
            self._steps.append(Step(now - self._last_end, *work))
            self._last_end = now
            self.requests_left(has_more)
        except Exception as error:
            self._fail(error)

    def requests_left(self, has_more: bool) -> None:
        """Requests are left, or none. Then the engine waits, which is no step's time, and what is
        there is written: vLLM kills data-parallel ranks without giving them any."""
        self._has_more = has_more
        if not has_more:
            self._wake.set()

    @property
    def is_on(self) -> bool:
        """Whether anything is still recorded."""
        return self._is_on

    def flush(self) -> None:
        """Wait until what is there is written, but not for long."""
        with self._flushes:
            self._num_asked += 1
            ticket = self._num_asked
            self._wake.set()
            self._flushes.wait_for(
                lambda: self._num_flushed >= ticket or not self._is_on, _FLUSHED_SECONDS
            )

    def close(self) -> None:
        """Write what is there, and end."""
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
            self._requests.clear()
            self._steps.clear()

    def _write_all(self) -> None:
        if max(len(self._requests), len(self._steps)) > MAX_WAITING:
            raise OSError(f"more than {MAX_WAITING} lines wait to be written")
        self._write(REQUESTS, self._requests, self._lines.line)
        self._write(STEPS, self._steps, step_line)

    def _write(
        self, kind: str, waiting: "deque[_Entry]", line_of: Callable[["_Entry"], bytes]
    ) -> None:
        for member in _members(map(line_of, _taken(waiting))):
            self._files[kind].write(member)

    def _fail(self, error: Exception) -> None:
        was_on, self._is_on = self._is_on, False
        if was_on:
            reason = error if isinstance(error, OSError) else repr(error)
            logger.warning(
                "kvoxide stops recording to %s, serving goes on: %s", self._folder, reason
            )


def _paths(folder: Path, kind: str, rank: int) -> Callable[[int], Path]:
    return lambda number: folder / file_name(kind, rank, os.getpid(), number)


def _work(output: Any) -> tuple[int, int, int]:
    """Prefilled tokens, tokens of context and requests of a step. A request of which one token is
    scheduled, beside its drafts, is taken to decode."""
    cached, drafts = output.scheduled_cached_reqs, output.scheduled_spec_decode_tokens
    scheduled = list(output.num_scheduled_tokens.values())
    decoded = scheduled.count(1)
    if drafts:
        decoded += len(drafts) + sum(map(len, drafts.values()))
    context = sum(cached.num_computed_tokens)
    for new in output.scheduled_new_reqs:
        context += new.num_computed_tokens
    return output.total_num_scheduled_tokens - decoded, context, len(scheduled)


def _taken(waiting: "deque[_Entry]") -> Iterator["_Entry"]:
    for _ in range(len(waiting)):
        yield waiting.popleft()


def _members(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines together, as long as they are not too many."""
    member: list[bytes] = []
    size = 0
    for line in lines:
        member.append(line)
        size += len(line)
        if size >= _MEMBER_BYTES:
            yield b"".join(member)
            member, size = [], 0
    if member:
        yield b"".join(member)
