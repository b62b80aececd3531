"""Traces from files, standard input and the package itself."""

import importlib.resources
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Final

from kvoxide._core import Trace, TraceError
from kvoxide.lab.replay.input.answers import with_answers
from kvoxide.lab.replay.input.compression import CompressedStreamError, decompressed
from kvoxide.lab.replay.input.containers import lines_of
from kvoxide.lab.replay.input.recording import (
    Deployment,
    read_recording,
    recorded_deployment,
    recorded_files,
)
from kvoxide.lab.replay.input.trace_file import ContainerError, Lines, TraceFile, TraceFileError

SAMPLE: Final = "sample"
STANDARD_INPUT: Final = "-"
# Lines from which the format is found out.
_NUM_FIRST: Final = 64


def read_trace(
    name: str,
    *,
    limit: int | None = None,
    skip_bad: bool = False,
    tokens_per_id: int | None = None,
    answers_return: bool = False,
    format: str | None = None,
    time_unit: str | None = None,
    columns: dict[str, str] | None = None,
) -> TraceFile:
    """Read the trace ``name``: a path, ``-`` for standard input, ``sample``, or a recording of a
    server, as a folder or one of its files.

    The first lines show the format, one of :meth:`Trace.formats`, unless ``format`` or ``columns``
    is given (see :class:`Trace`). Times that are numbers are in ``time_unit``, which is inferred
    unless it is given. gzip, zstd, xz, bzip2, zip, Parquet, Arrow, Excel workbooks and UTF-16 are
    recognised by content. Blank lines are skipped. Reading stops after ``limit`` requests. The
    lengths determine ``tokens_per_id`` unless it is given. ``answers_return`` takes outputs from
    follow-ups. ``skip_bad`` counts damaged lines.

    Raises :class:`TraceFileError` for:

    - a file that cannot be read, or a damaged compressed stream
    - a damaged line, without ``skip_bad``
    - a trace without requests, or with requests that wait for others that never come
    - ``answers_return`` and a trace without conversations
    - lengths that do not determine ``tokens_per_id``
    """
    shown = _shown(name)
    started = time.perf_counter()
    if files := _recorded_files(name):
        file = read_recording(shown, files, limit, skip_bad, tokens_per_id)
    else:
        trace = Trace(tokens_per_id, format=format, time_unit=time_unit, columns=columns)
        file = _read_file(name, shown, limit, skip_bad, trace)
    file = with_answers(file, are_returned=answers_return)
    return replace(file, read_seconds=time.perf_counter() - started)


def _read_file(name: str, shown: str, limit: int | None, skip_bad: bool, trace: Trace) -> TraceFile:
    lines = _Lines(shown, skip_bad, trace)
    try:
        with _opened(name) as source:
            lines.read(lines_of(decompressed(source), trace, lines.notes.append), limit)
    except ContainerError as error:
        raise TraceFileError(f"{shown} {error}") from error
    except TraceError as error:
        raise TraceFileError(f"{shown}: {error}") from error
    except (OSError, CompressedStreamError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TraceFileError(f"cannot read {shown}: {reason}") from error
    lines.finish()
    lines.check_ids()
    return TraceFile(
        name=shown,
        trace=lines.trace,
        limit=limit,
        skip_bad=skip_bad,
        bad_lines=lines.bad_lines,
        first_bad_line=lines.first_bad_line,
        notes=(*lines.trace.notes, *lines.notes, *_suspicions(lines.trace)),
    )


def _suspicions(trace: Trace) -> Iterator[str]:
    """That ids or prompts may mean something else than what is played."""
    if trace.counts_from_zero:
        yield (
            "the ids of every prompt count from 0. If they only number the blocks of each prompt,"
            " equal ids are not equal content, and the hits are wrong"
        )
    restarts, turns = trace.num_restarts
    if restarts:
        yield (
            f"{restarts:,} of {turns:,} prompts share nothing with the previous prompt of their"
            " session. Lines with only the new tokens are replayed as whole prompts"
        )


def read_deployment(name: str) -> Deployment | None:
    """Return the deployment of the server that recorded ``name``, or None if that is no recording.
    Raises :class:`TraceFileError`."""
    return recorded_deployment(_recorded_files(name))


def _recorded_files(name: str) -> list[Path]:
    return [] if name in (STANDARD_INPUT, SAMPLE) else recorded_files(name, _shown(name))


def _shown(name: str) -> str:
    """The name as text that can be printed, which a file name need not be."""
    if name == STANDARD_INPUT:
        return "standard input"
    return os.fsencode(name).decode(errors="replace")


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
    elif name == SAMPLE:
        data = importlib.resources.files("kvoxide.lab.replay.input") / "data" / "sample.jsonl.gz"
        with data.open("rb") as file:
            yield file
    else:
        with open(name, "rb") as file:
            yield file


class _Lines(Lines):
    """The lines of one file."""

    def __init__(self, name: str, skip_bad: bool, trace: Trace) -> None:
        super().__init__(skip_bad, trace)
        self._name = name
        self._first_other_line: int | None = None
        self._is_cut = False
        self._is_empty = False
        self.notes: list[str] = []

    def read(self, lines: Iterable[bytes], limit: int | None) -> None:
        source = iter(lines)
        first = list(islice(source, _NUM_FIRST))
        self._is_empty = all(line.isspace() for line in first)
        if self.trace.find_format([line for line in first if not line.isspace()]):
            source = chain(first, source)
        else:
            source = iter([b"".join(chain(first, source))])  # one JSON value of many lines
        for number, line in enumerate(source, start=1):
            if line.isspace():
                continue
            try:
                # Not all blanks: a tab may separate empty values.
                self.trace.push_line(line.strip(b" \r\n"))
            except TraceError as error:
                self.bad(self._name, number, error)
            if self._first_other_line is None and not self.trace.may_be_mooncakes:
                self._first_other_line = number
            if limit is not None and len(self.trace) >= limit:
                # A line may hold many requests.
                self.trace.truncate(limit)
                self._is_cut = True
                return

    def finish(self) -> None:
        """End the reading. Requests that wait for ones that never come are damaged lines, unless
        it was asked for the first requests only."""
        try:
            self.trace.finish()
        except TraceError as error:
            message = f"{self._name}: {error}"
            if not (self._skip_bad or self._is_cut):
                raise TraceFileError(message) from error
            left_out = self.trace.finish(leave_out=True)
            if self._is_cut:
                self.notes.append(
                    f"requests left out, because they wait forever: {left_out}; {error}"
                )
            else:
                self.bad_lines += left_out
                self.first_bad_line = self.first_bad_line or message
        if len(self.trace) == 0:
            bad = f"bad lines: {self.bad_lines}; {self.first_bad_line}" if self.bad_lines else ""
            what = f"{self._name} is empty" if self._is_empty else f"{self._name} holds no request"
            raise TraceFileError("; ".join(filter(None, (what, bad, *self.trace.notes))))

    def check_ids(self) -> None:
        """Raise :class:`TraceFileError` if the lengths do not determine the tokens per id."""
        try:
            _ = self.trace.tokens_per_id
        except TraceError as error:
            where = f"{self._name}, line {self._first_other_line}"
            raise TraceFileError(f"{where}: {error} with --tokens-per-id") from error
