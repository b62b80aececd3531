"""Recordings of servers: a folder of files, whose schedulers each have ids of their own."""

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from kvoxide._core import ConfigError, Trace
from kvoxide.lab.replay.input.compression import CompressedStreamError
from kvoxide.lab.replay.input.recording.headers import (
    Deployment,
    Header,
    deployment_of,
    fields_of,
    first_line,
    read_header,
)
from kvoxide.lab.replay.input.recording.request_files import Part, read_part
from kvoxide.lab.replay.input.step_files import read_steps
from kvoxide.lab.replay.input.trace_file import Lines, TraceFile, TraceFileError
from kvoxide.recording_format import RECORDING_FIELD, REQUESTS, STEPS, pattern


def recorded_files(name: str, shown: str) -> list[Path]:
    """The files of requests in a folder, or the one that is named; none where ``name`` is neither.

    Raises :class:`TraceFileError` for a folder without any.
    """
    path = Path(name)
    if path.is_dir():
        files = sorted(path.glob(pattern(REQUESTS)))
        if not files:
            raise TraceFileError(
                f"cannot read {shown}: the folder has no files {pattern(REQUESTS)}, which a server"
                " with KVOXIDE_RECORD writes. To replay another trace, name its file"
            )
        return files
    return [path] if path.is_file() and _is_recorded(path) else []


def recorded_deployment(files: list[Path]) -> Deployment | None:
    """Return the deployment of the server that recorded these files, or None without files.

    Raises :class:`TraceFileError`.
    """
    headers = _headers(files)
    if not headers:
        return None
    has_schedule = all(header.format > 1 for header in headers)
    started = min(header.started for header in headers)
    return deployment_of(headers[0], started, len(_ranks(headers)), has_schedule=has_schedule)


def read_recording(
    name: str, files: list[Path], limit: int | None, skip_bad: bool, tokens_per_id: int | None
) -> TraceFile:
    """Read the first ``limit`` requests of recorded files, in the order of their arrival. Equal ids
    of different schedulers are different blocks. Each data-parallel rank is an instance.

    Raises :class:`TraceFileError` for headers that are missing or do not go together, and for what
    cannot be read.
    """
    headers = _headers(files)
    trace = Trace(_common_width(headers, tokens_per_id), format="recording")
    ranks = _ranks(headers)
    lines = Lines(skip_bad, trace)
    first = min((header.started for header in headers), default=0.0)
    schedulers: list[list[Part]] = []
    by_recording = sorted(headers, key=lambda it: (it.started, it.recording, it.part, it.path))
    step_files = _step_files(files)
    for recording, parts in groupby(by_recording, lambda header: header.recording):
        schedulers.append([])
        for index, header in enumerate(parts):
            if index == 0:
                trace.start_part(header.started - first, ranks.index(header.rank))
                if header.format > 1:
                    trace.start_schedule()
            schedulers[-1].append(read_part(header, lines, is_first=index == 0))
        trace.push_durations(_durations(step_files.get(recording, ())))
    if len(trace) == 0:
        raise TraceFileError(f"{name} holds no request; bad lines: {lines.bad_lines}")
    trace.sort_by_arrival()
    if limit is not None:
        trace.truncate(limit)
    cut_off = len(files) - len(headers) + sum(not p.is_whole for s in schedulers for p in s)
    return TraceFile(
        name,
        trace,
        limit,
        skip_bad,
        lines.bad_lines,
        lines.first_bad_line,
        cut_off,
        notes=_notes(schedulers),
        lacks=_lacks(schedulers, cut_off),
    )


def _step_files(files: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files of steps in the folders of files of requests, by their recordings."""
    found: dict[str, list[Path]] = {}
    for folder in dict.fromkeys(path.parent for path in files):
        for path in sorted(folder.glob(pattern(STEPS))):
            try:
                fields = fields_of(first_line(path)) or {}
            except (OSError, CompressedStreamError):
                continue
            found.setdefault(str(fields.get(RECORDING_FIELD)), []).append(path)
    return found


_MOST_RUNNING = 2**32 - 1


def _durations(files: Sequence[Path]) -> list[tuple[float, int]]:
    """Return how long each step took in seconds and its requests; nothing where a file is damaged,
    which a fit of step times reports."""
    try:
        steps = [step for path in files for step in read_steps(path).tolist()]
    except ConfigError:
        return []
    return [(duration, min(int(running), _MOST_RUNNING)) for duration, _, _, running in steps]


def _notes(schedulers: Sequence[Sequence[Part]]) -> tuple[str, ...]:
    """Return a note for each thing that the recordings lack."""
    notes = []
    parts = [part for scheduler in schedulers for part in scheduler]
    if any(part.header.format == 1 for part in parts):
        notes.append(
            "the recording has format 1, without steps, cache resets and requests that skip the"
            " prefix cache. The server may have had fewer hits"
        )
    if any(_lacks_begin(scheduler) for scheduler in schedulers):
        notes.append(
            "the beginning of the recording is missing (a size limit deletes the oldest files)."
            " The first requests have fewer hits than on the server"
        )
    if any(_lacks_middle(scheduler) for scheduler in schedulers):
        notes.append("files in the middle of the recording are missing; hits may differ")
    headers = [part.header.fields for part in parts]
    loading = (fields.get("connector") for fields in headers if not fields.get("host_memory"))
    notes += [_loaded(name) for name in dict.fromkeys(loading) if name]
    if any(map(_lacks_samples, headers)):
        notes.append(
            "the server had adaptive retention, which samples blocks by their hashes. This older"
            " recording does not say which, so hits may differ by some blocks"
        )
    notes += dict.fromkeys(_cut(each[-1]) for each in schedulers if _is_cut(each[-1]))
    return tuple(notes)


def _lacks(schedulers: Sequence[Sequence[Part]], cut_off: int) -> tuple[str, ...]:
    """Return what the recordings lack, without the effects on a replay."""
    found = {
        "the beginning of the recording is missing": any(map(_lacks_begin, schedulers)),
        "files in the middle of the recording are missing": any(map(_lacks_middle, schedulers)),
        "files end too early": cut_off > 0,
    }
    ends = dict.fromkeys(_cut(each[-1]) for each in schedulers if _is_cut(each[-1]))
    return (*(text for text, is_found in found.items() if is_found), *ends)


def _loaded(connector: object) -> str:
    return (
        f"the server had the connector {connector}. Tokens that it loaded are not recorded; the"
        " replay computes them, and later hits may differ"
    )


def _lacks_samples(fields: Mapping[str, Any]) -> bool:
    return str(fields.get("policy")).startswith("adaptive") and not fields.get("samples")


def _lacks_begin(scheduler: Sequence[Part]) -> bool:
    return scheduler[0].header.part > 0


def _lacks_middle(scheduler: Sequence[Part]) -> bool:
    numbers = [part.header.part for part in scheduler if part.header.format > 1]
    return any(later - earlier != 1 for earlier, later in pairwise(numbers))


def _is_cut(last: Part) -> bool:
    return last.header.format > 1 and last.end not in ("idle", "closed")


def _cut(last: Part) -> str:
    if last.end == "failed":
        why = f"recording failed on the server: {last.reason}"
    else:
        why = "the server was killed, the disk was full, or it is still recording"
    return f"the recording has no end ({why}); requests that were running at its end are missing"


def _headers(files: list[Path]) -> list[Header]:
    """Return the headers of all files that have one."""
    return [header for path in files if (header := read_header(path))]


def _ranks(headers: list[Header]) -> list[int]:
    """The data-parallel ranks of all files, each an instance of a replay."""
    return sorted({header.rank for header in headers})


def _is_recorded(path: Path) -> bool:
    try:
        return fields_of(first_line(path)) is not None
    except (OSError, CompressedStreamError):
        return False  # reading it as a trace raises the error


def _common_width(headers: list[Header], given: int | None) -> int | None:
    for header in headers:
        expected = given or headers[0].tokens_per_id
        if header.tokens_per_id != expected:
            other = "but --tokens-per-id is" if given else f"but in {headers[0].path.name} it means"
            raise TraceFileError(
                f"{header.path}: an id means {header.tokens_per_id} tokens, {other} {expected}"
            )
    return headers[0].tokens_per_id if headers else None
