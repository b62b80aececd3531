"""Recordings of servers: a folder of files, whose schedulers each have ids of their own."""

from itertools import groupby
from pathlib import Path

from kvoxide._core import Trace, TraceError
from kvoxide.recording_format import REQUESTS, pattern
from kvoxide.replay.compression import CompressedStreamError, CutOffError
from kvoxide.replay.recording.headers import (
    Deployment,
    Header,
    cannot_read,
    deployment_of,
    fields_of,
    first_line,
    lines_of,
    read_header,
)
from kvoxide.replay.trace_file import Lines, TraceFile, TraceFileError


def recorded_files(name: str, shown: str) -> list[Path]:
    """The files of requests in a folder, or the one that is named; none where ``name`` is neither.

    Raises :class:`TraceFileError` for a folder without any.
    """
    path = Path(name)
    if path.is_dir():
        files = sorted(path.glob(pattern(REQUESTS)))
        if not files:
            raise TraceFileError(
                f"cannot read {shown}: the directory has no files {pattern(REQUESTS)}, as a server"
                " with KVOXIDE_RECORD writes them"
            )
        return files
    return [path] if path.is_file() and _is_recorded(path) else []


def recorded_deployment(files: list[Path]) -> Deployment | None:
    """What the server had that recorded these files; None where there are none.

    Raises :class:`TraceFileError`.
    """
    headers = _headers(files)
    return deployment_of(headers[0], len(_ranks(headers))) if headers else None


def read_recording(
    name: str, files: list[Path], limit: int | None, skip_bad: bool, tokens_per_id: int | None
) -> TraceFile:
    """Read the requests of recorded files in the order of their arrival, the first ``limit`` of
    them. Each scheduler's ids are kept apart from those of others, and each data-parallel rank is
    the instance that served its requests.

    Raises :class:`TraceFileError` for headers that are missing or do not go together, and for what
    cannot be read.
    """
    headers = _headers(files)
    trace = Trace(_common_width(headers, tokens_per_id), format="recording")
    ranks = _ranks(headers)
    lines = Lines(skip_bad, trace)
    first = min((header.started for header in headers), default=0.0)
    cut_off = len(files) - len(headers)
    by_recording = sorted(headers, key=lambda header: (header.started, header.recording))
    for _, parts in groupby(by_recording, lambda header: header.recording):
        for index, header in enumerate(parts):
            if index == 0:
                trace.start_part(header.started - first, ranks.index(header.rank))
            cut_off += not _read_requests(header.path, lines)
    if len(trace) == 0:
        raise TraceFileError(f"{name} holds no request; bad lines: {lines.bad_lines}")
    trace.sort_by_arrival()
    if limit is not None:
        trace.truncate(limit)
    return TraceFile(name, trace, limit, skip_bad, lines.bad_lines, lines.first_bad_line, cut_off)


def _headers(files: list[Path]) -> list[Header]:
    """Those of the files that have one."""
    return [header for path in files if (header := read_header(path))]


def _ranks(headers: list[Header]) -> list[int]:
    """The data-parallel ranks of all files, each an instance of a replay."""
    return sorted({header.rank for header in headers})


def _read_requests(path: Path, lines: Lines) -> bool:
    """Whether the file is whole."""
    try:
        for number, line in lines_of(path):
            if number == 1 or line.isspace():
                continue
            if not line.endswith(b"\n"):
                return False
            try:
                lines.trace.push_line(line.strip())
            except TraceError as error:
                lines.bad(str(path), number, error)
    except CutOffError:
        return False
    except (OSError, CompressedStreamError) as error:
        raise cannot_read(path, error) from error
    return True


def _is_recorded(path: Path) -> bool:
    try:
        return fields_of(first_line(path)) is not None
    except (OSError, CompressedStreamError):
        return False  # reading it as a trace raises the error


def _common_width(headers: list[Header], given: int | None) -> int | None:
    for header in headers:
        expected = given or headers[0].tokens_per_id
        if header.tokens_per_id != expected:
            other = "--tokens-per-id says" if given else f"those of {headers[0].path.name} for"
            raise TraceFileError(
                f"{header.path}: ids stand for {header.tokens_per_id} tokens each, {other}"
                f" {expected}"
            )
    return headers[0].tokens_per_id if headers else None
