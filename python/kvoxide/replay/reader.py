"""Traces from files, standard input and the package itself."""

import importlib.resources
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Final

from kvoxide._core import KvoxideError, Trace, TraceError
from kvoxide.replay.compression import CompressedStreamError, decompressed

SAMPLE: Final = "sample"
STANDARD_INPUT: Final = "-"


class TraceFileError(KvoxideError, ValueError):
    """A trace that cannot be read; the message names the file, and the line and field at fault."""


@dataclass(frozen=True)
class TraceFile:
    """A trace that was read, how it was read, and what came of the reading.

    ``limit`` is the most requests asked for; ``first_bad_line`` says where and why.
    """

    name: str
    trace: Trace
    limit: int | None
    skip_bad: bool
    bad_lines: int
    first_bad_line: str | None
    read_seconds: float


def read_trace(
    name: str,
    *,
    limit: int | None = None,
    skip_bad: bool = False,
    tokens_per_id: int | None = None,
) -> TraceFile:
    """Read the JSONL trace ``name``: a path, ``-`` for standard input, or ``sample``.

    gzip and zstd are recognised by content. Blank lines are skipped. Reading stops after
    ``limit`` requests. How many tokens an id stands for is found out from the lengths unless it is
    given. With ``skip_bad`` damaged lines are counted; without, the first one raises
    :class:`TraceFileError`, as do a file that cannot be read, a damaged compressed stream, a trace
    without requests, and one whose lengths do not tell how many tokens an id stands for.
    """
    shown = _shown(name)
    started = time.perf_counter()
    lines = _Lines(shown, skip_bad, Trace(tokens_per_id))
    try:
        with _opened(name) as source:
            lines.read(decompressed(source), limit)
    except (OSError, CompressedStreamError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TraceFileError(f"cannot read {shown}: {reason}") from error
    if len(lines.trace) == 0:
        raise TraceFileError(f"{shown} holds no request; bad lines: {lines.bad_lines}")
    lines.check_ids()
    return TraceFile(
        name=shown,
        trace=lines.trace,
        limit=limit,
        skip_bad=skip_bad,
        bad_lines=lines.bad_lines,
        first_bad_line=lines.first_bad_line,
        read_seconds=time.perf_counter() - started,
    )


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
        data = importlib.resources.files("kvoxide.replay") / "data" / "sample.jsonl.gz"
        with data.open("rb") as file:
            yield file
    else:
        with open(name, "rb") as file:
            yield file


class _Lines:
    """Feeds lines to a trace and keeps count of the damaged ones."""

    def __init__(self, name: str, skip_bad: bool, trace: Trace) -> None:
        self.trace = trace
        self.bad_lines = 0
        self.first_bad_line: str | None = None
        self._name = name
        self._skip_bad = skip_bad
        self._first_other_line: int | None = None

    def read(self, lines: Iterable[bytes], limit: int | None) -> None:
        for number, line in enumerate(lines, start=1):
            if line.isspace():
                continue
            try:
                self.trace.push_line(line.strip())
            except TraceError as error:
                self._bad(number, error)
            if self._first_other_line is None and not self.trace.may_be_mooncakes:
                self._first_other_line = number
            if len(self.trace) == limit:
                return

    def check_ids(self) -> None:
        """Raise where the lengths do not tell how many tokens an id stands for."""
        try:
            _ = self.trace.tokens_per_id
        except TraceError as error:
            where = f"{self._name}, line {self._first_other_line}"
            raise TraceFileError(f"{where}: {error} with --tokens-per-id") from error

    def _bad(self, number: int, error: TraceError) -> None:
        message = f"{self._name}, line {number}: {error}"
        if not self._skip_bad:
            raise TraceFileError(message) from error
        self.bad_lines += 1
        self.first_bad_line = self.first_bad_line or message
