"""Command line options that more than one command has, and the values they become."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kvoxide._core import ConfigError, Trace
from kvoxide.replay.outputs import OutputError, check_writable
from kvoxide.replay.plots import FORMATS
from kvoxide.replay.policies import NamedPolicy, check_names_differ, parse_policy
from kvoxide.replay.reader import SAMPLE, TraceFile, read_trace

Command = TypeVar("Command", bound=Callable[..., Any])
Value = TypeVar("Value")

MAX_INTEGER: Final = 2**31 - 1
# No prompt is longer.
_MAX_TOKENS_PER_ID: Final = 2**28

positive = click.IntRange(min=1, max=MAX_INTEGER)


@dataclass(frozen=True)
class TraceOptions:
    """Which trace, and what of it: the first ``requests``, all if None. ``tokens_per_id`` is None
    where the lengths tell, ``format`` where the first lines do; ``answers_return`` takes outputs
    from follow-ups. ``time_unit`` and ``columns`` are as :class:`Trace` takes them."""

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


def gathered(name: str, kind: type) -> Callable[[Command], Command]:
    """Give the command one argument in the place of several: ``name``, a dataclass of this kind,
    made of the parameters that its fields name."""

    def gathering(command: Command) -> Command:
        @wraps(command)
        def with_one(*args: Any, **given: Any) -> Any:  # noqa: ANN401
            parts = {field.name: given.pop(field.name) for field in fields(kind)}
            return command(*args, **{name: kind(**parts)}, **given)

        return with_one  # type: ignore[return-value]

    return gathering


def policies_option(*default: str) -> Callable[[Command], Command]:
    """``--policy``, repeatable, with the policies that are taken when it is not given."""
    return click.option(
        "--policy",
        "policies",
        multiple=True,
        metavar="POLICY",
        default=default,
        show_default=", ".join(default),
        callback=parsed_with(_parse_policies),
        help="adaptive, or adaptive,share=SHARE; or fifo, uncached-first, interval=N,"
        " interval=auto, pin, pin=MIN_DROP, or several of these joined by commas. Repeat it to"
        " compare policies.",
    )


def trace_options(command: Command) -> Command:
    """The argument TRACE and what is read of it; the command is given them as ``source``,
    :class:`TraceOptions`."""
    command = gathered("source", TraceOptions)(command)
    for option in reversed(_TRACE_OPTIONS):
        command = option(command)
    return command


def scheduler_options(command: Command) -> Command:
    """``--concurrency`` and ``--max-batched-tokens``."""
    for option in reversed(_SCHEDULER_OPTIONS):
        command = option(command)
    return command


def output_option(name: str, metavar: str, text: str) -> Callable[[Command], Command]:
    """An option that names a file to write, refused at once if it cannot be written."""
    return click.option(
        name,
        f"{name.strip('-').replace('-', '_')}_path",
        metavar=metavar,
        callback=parsed_with(checked_output),
        help=text,
    )


def plot_option(text: str) -> Callable[[Command], Command]:
    """``--plot``, whose ending says the format."""
    return click.option(
        "--plot",
        "plot_path",
        metavar="FILE.png",
        callback=parsed_with(_checked_plot),
        help=f"{text} The ending may be {', '.join(FORMATS)}.",
    )


quiet_option = click.option(
    "--quiet", is_flag=True, help="Print nothing but errors; results go to the files only."
)


def parsed_with(parse: Callable[[Any], Value]) -> Callable[..., Value | None]:
    """A click callback that parses what is given and reports a refusal as the option's."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Value | None:  # noqa: ANN401
        if value is None:
            return None
        try:
            return parse(value)
        except (ConfigError, OutputError) as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback


def _parse_columns(text: str) -> dict[str, str]:
    """Columns by what they are. Raises :class:`ConfigError` for what is no list of them."""
    columns: dict[str, str] = {}
    for part in text.split(","):
        role, separator, column = part.partition("=")
        role = role.strip()
        if not separator:
            raise ConfigError(f"{part!r} names no column; write it as in input=ContextTokens")
        if role in columns:
            raise ConfigError(f"{role} is given twice")
        columns[role] = column.strip()
    Trace(columns=columns)
    return columns


def _parse_policies(texts: tuple[str, ...]) -> tuple[NamedPolicy, ...]:
    policies = tuple(parse_policy(text) for text in texts)
    check_names_differ(policies)
    return policies


def checked_output(text: str) -> Path:
    """The file to write. Raises :class:`OutputError` if it cannot be written."""
    path = Path(text)
    check_writable(path)
    return path


def _checked_plot(text: str) -> Path:
    if Path(text).suffix.lower() not in FORMATS:
        raise ConfigError(f"{text!r} must end in one of {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("plots need matplotlib; pip install 'kvoxide[cli]'")
    return checked_output(text)


_TRACE_OPTIONS: Final[list[Callable[..., Any]]] = [
    click.argument("trace", default=SAMPLE),
    click.option("--requests", type=positive, metavar="N", help="Play only the first N requests."),
    click.option(
        "--tokens-per-id",
        type=click.IntRange(min=1, max=_MAX_TOKENS_PER_ID),
        metavar="N",
        help="Tokens that each of the hash_ids stands for.  [default: what the lengths tell]",
    ),
    click.option(
        "--format",
        type=click.Choice(Trace.formats()),
        help="The format of the trace; `kvoxide formats` lists them.  [default: what the first"
        " lines show]",
    ),
    click.option(
        "--columns",
        metavar="ROLE=NAME,...",
        callback=parsed_with(_parse_columns),
        help="Columns of a table, or fields of JSON lines, by what they are: input and output"
        " (tokens), and perhaps time, session, prefix, ids and block_size.",
    ),
    click.option(
        "--time-unit",
        type=click.Choice(["s", "ms", "us", "ns"]),
        help="Unit of times that are numbers.  [default: what the times show, else the format's]",
    ),
    click.option("--skip-bad", is_flag=True, help="Count damaged lines instead of stopping."),
    click.option(
        "--answers-return",
        is_flag=True,
        help="Take what requests generate from the prompts that follow them in their session, so"
        " that these can hit it. Lines need a session_id, or chat_id and parent_chat_id.",
    ),
]
_SCHEDULER_OPTIONS: Final[list[Callable[..., Any]]] = [
    click.option(
        "--concurrency",
        type=positive,
        default=256,
        show_default=True,
        help="Most requests that run at a time.",
    ),
    click.option(
        "--max-batched-tokens",
        type=positive,
        default=8192,
        show_default=True,
        help="Most tokens scheduled in one step.",
    ),
]
