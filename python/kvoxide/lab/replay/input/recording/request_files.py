"""The lines of one recorded file of requests."""

import json
from dataclasses import dataclass
from typing import Any

from kvoxide._core import TraceError
from kvoxide.lab.replay.input.compression import CompressedStreamError, CutOffError
from kvoxide.lab.replay.input.recording.headers import Header, cannot_read, lines_of
from kvoxide.lab.replay.input.trace_file import Lines
from kvoxide.recording_format import ENDS

# A writer puts the field that tells what a line is first.
_SCHEDULES = (b'{"schedule"', b'{"reset"', b'{"sampled"')
_RUNNING = b'{"running"'
_END = b'{"end"'


@dataclass
class Part:
    """The content of a file. ``end`` is set if the last line says that nothing is left to write."""

    header: Header
    is_whole: bool = True
    end: str | None = None
    reason: str | None = None


def read_part(header: Header, lines: Lines, *, is_first: bool) -> Part:
    """Read the lines below a header into the trace of ``lines``; ``is_first`` for the first file
    that is left of a scheduler. Raises :class:`~kvoxide.lab.replay.input.TraceFileError`."""
    part = Part(header)
    try:
        for number, line in lines_of(header.path):
            if number == 1 or line.isspace():
                continue
            if not line.endswith(b"\n"):
                part.is_whole = False
                break
            try:
                _read_line(line.strip(), part, lines, begins=is_first and header.part > 0)
            except (TraceError, ValueError) as error:
                lines.bad(str(header.path), number, error)
    except CutOffError:
        part.is_whole = False
    except (OSError, CompressedStreamError) as error:
        raise cannot_read(header.path, error) from error
    return part


def _read_line(line: bytes, part: Part, lines: Lines, *, begins: bool) -> None:
    """``begins`` where what runs was admitted in a file that is missing."""
    trace = lines.trace
    part.end = None
    if line.startswith(_SCHEDULES):
        trace.push_schedule(line)
    elif line.startswith(_RUNNING):
        if begins:
            trace.push_schedule(_admitting(_fields(line)))
    elif line.startswith(_END):
        fields = _fields(line)
        end, reason = fields.get("end"), fields.get("reason")
        if end not in ENDS:
            raise ValueError(f"field 'end' is {end!r}; it can be {', '.join(ENDS)}")
        part.end, part.reason = end, None if reason is None else str(reason)
    else:
        trace.push_line(line)


def _admitting(fields: dict[str, Any]) -> bytes:
    """Return the running requests as a step that admits them."""
    running = fields["running"]
    if not (isinstance(running, list) and all(_is_pair(each) for each in running)):
        raise ValueError(f"field 'running' is {running!r}; expected pairs of numbers")
    step = [[number, 0, start] for number, start in running]
    return json.dumps({"schedule": [step]}).encode()


def _is_pair(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, list) and len(value) == 2 and all(type(n) is int for n in value)


def _fields(line: bytes) -> dict[str, Any]:
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("is not a JSON object")
    return fields
