"""Help to define options: parse their values, and gather several of them."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, Final, TypeVar

import click

from kvoxide._core import KvoxideError

Command = TypeVar("Command", bound=Callable[..., Any])
Value = TypeVar("Value")

MAX_INTEGER: Final = 2**31 - 1

positive = click.IntRange(min=1, max=MAX_INTEGER)


def exclusive(*options: str) -> click.UsageError:
    """Return the error for options that cannot be used together."""
    return click.UsageError(f"{' and '.join(options)} cannot be used together; give one of them")


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


def parsed_with(parse: Callable[[Any], Value]) -> Callable[..., Value | None]:
    """A click callback that parses what is given and reports a refusal as the option's."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Value | None:  # noqa: ANN401
        if value is None:
            return None
        try:
            return parse(value)
        except KvoxideError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback
