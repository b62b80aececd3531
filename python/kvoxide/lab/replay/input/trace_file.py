"""A trace that was read, and what came of the reading."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvoxide._core import KvoxideError, Trace


class TraceFileError(KvoxideError, ValueError):
    """A trace that cannot be read; the message names the file, and the line and field at fault."""


class ContainerError(Exception):
    """A file whose content is no lines, and cannot be made lines; the message says what it is."""


class NotRecordedError(TraceFileError):
    """A trace that no server recorded, where only a recording has what is needed."""

    def __init__(self, name: str) -> None:
        """Take the name of the trace."""
        super().__init__(
            f"{name} is no recording of a server. Give the folder that the server wrote with "
            "KVOXIDE_RECORD, or one of its files of requests. To replay another trace, run kvoxide "
            "replay"
        )


@dataclass(frozen=True)
class TraceFile:
    """A trace that was read, how it was read, and what came of the reading.

    ``limit`` is the most requests asked for; ``first_bad_line`` says where and why. Of the files of
    a recording, ``cut_off_files`` end too early. ``notes`` say what of the trace is not played as
    might be expected. ``lacks`` say which parts of a recording are missing. ``returned_answers`` is
    how many outputs were found in follow-ups, None if that was not asked for.
    """

    name: str
    trace: Trace
    limit: int | None
    skip_bad: bool
    bad_lines: int
    first_bad_line: str | None
    cut_off_files: int = 0
    read_seconds: float = 0.0
    returned_answers: int | None = None
    answers_note: str | None = None
    notes: Sequence[str] = ()
    lacks: Sequence[str] = ()

    @property
    def warnings(self) -> list[str]:
        """Return a line for each reason why lines or files were left out, and a note on answers."""
        texts = list(self.notes)
        if self.bad_lines:
            texts.append(f"bad lines: {self.bad_lines}; {self.first_bad_line}")
        if self.cut_off_files:
            files = "file ends" if self.cut_off_files == 1 else "files end"
            texts.append(f"{self.cut_off_files} {files} too early; all whole lines are replayed")
        if self.answers_note is not None:
            texts.append(self.answers_note)
        return texts


class Lines:
    """Feeds lines to a trace and keeps count of the damaged ones."""

    def __init__(self, skip_bad: bool, trace: Trace) -> None:
        """Damaged lines are counted with ``skip_bad``, else an error."""
        self.trace = trace
        self.bad_lines = 0
        self.first_bad_line: str | None = None
        self._skip_bad = skip_bad

    def bad(self, name: str, number: int, error: Exception) -> None:
        """Line ``number`` of a file is damaged. Raises :class:`TraceFileError`, or counts it."""
        message = f"{name}, line {number}: {error}"
        if not self._skip_bad:
            raise TraceFileError(message) from error
        self.bad_lines += 1
        self.first_bad_line = self.first_bad_line or message
