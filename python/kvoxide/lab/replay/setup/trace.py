"""Define the options of a command that name a trace and say how to read it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from kvoxide._core import ConfigError, Trace
from kvoxide.lab.options import Command, gathered, parsed_with, positive
from kvoxide.lab.replay.input import SAMPLE, TraceFile, read_trace

# No prompt is longer.
_MAX_TOKENS_PER_ID: Final = 2**28


@dataclass(frozen=True)
class TraceOptions:
    """The name of a trace, and how to read it.

    Only the first ``requests`` are read, or all if None. ``tokens_per_id`` None infers it from the
    lengths, and ``format`` None infers it from the first lines. ``answers_return`` takes outputs
    from follow-ups. ``time_unit`` and ``columns`` are arguments of :class:`Trace`.
    """

    trace: str
    requests: int | None
    tokens_per_id: int | None
    skip_bad: bool
    answers_return: bool
    format: str | None
    time_unit: str | None
    columns: dict[str, str] | None

    def read(self, *, quiet: bool) -> TraceFile:
        """The trace; unless ``quiet``, messages say what was left out of it, and what becomes of
        its answers."""
        file = read_trace(
            self.trace,
            limit=self.requests,
            skip_bad=self.skip_bad,
            tokens_per_id=self.tokens_per_id,
            answers_return=self.answers_return,
            format=self.format,
            time_unit=self.time_unit,
            columns=self.columns,
        )
        for warning in () if quiet else file.warnings:
            click.echo(warning, err=True)
        return file


def trace_options(command: Command) -> Command:
    """The argument TRACE and what is read of it; the command is given them as ``source``,
    :class:`TraceOptions`."""
    command = gathered("source", TraceOptions)(command)
    for option in reversed(_TRACE_OPTIONS):
        command = option(command)
    return command


def _parse_columns(text: str) -> dict[str, str]:
    """Columns by what they are. Raises :class:`ConfigError` for what is no list of them."""
    columns: dict[str, str] = {}
    for part in text.split(","):
        role, separator, column = part.partition("=")
        role = role.strip()
        if not separator:
            raise ConfigError(f"{part!r} names no column; write it like input=ContextTokens")
        if role in columns:
            raise ConfigError(f"{role} is given twice")
        columns[role] = column.strip()
    Trace(columns=columns)
    return columns


_TRACE_OPTIONS: Final[list[Callable[..., Any]]] = [
    click.argument("trace", default=SAMPLE),
    click.option(
        "--requests",
        type=positive,
        metavar="N",
        help="Replay only the first N requests.  [default: all]",
    ),
    click.option(
        "--tokens-per-id",
        type=click.IntRange(min=1, max=_MAX_TOKENS_PER_ID),
        metavar="N",
        help="Tokens per id in hash_ids.  [default: inferred from the lengths]",
    ),
    click.option(
        "--format",
        type=click.Choice(Trace.formats()),
        help="Format of the trace; `kvoxide formats` lists them.  [default: inferred from the first"
        " lines]",
    ),
    click.option(
        "--columns",
        metavar="ROLE=NAME,...",
        callback=parsed_with(_parse_columns),
        help="Columns of a table, or fields of JSON lines: input and output (tokens); optionally"
        " time, session, prefix, ids and block_size.",
    ),
    click.option(
        "--time-unit",
        type=click.Choice(["s", "ms", "us", "ns"]),
        help="Unit of times that are numbers.  [default: inferred from the times, or the format's"
        " unit]",
    ),
    click.option(
        "--skip-bad", is_flag=True, help="Skip and count damaged lines instead of stopping."
    ),
    click.option(
        "--answers-return",
        is_flag=True,
        help="Infer each answer from the next prompt of its session, so that later turns can hit"
        " it. Lines need a session_id, or chat_id and parent_chat_id.",
    ),
]
