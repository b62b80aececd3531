"""Define the options for policies and for the limits of the scheduler."""

from collections.abc import Callable
from typing import Any, Final

import click

from kvoxide.lab.options import Command, parsed_with, positive
from kvoxide.lab.replay.input import NamedPolicy, check_names_differ, parse_policy


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
        help="vllm (vLLM's default) or vllm=RELEASE. Or adaptive, adaptive,share=SHARE. Or fifo,"
        " uncached-first, interval=N, interval=auto, pin, pin=MIN_DROP, joined by commas. Repeat it"
        " to compare policies.",
    )


def scheduler_options(command: Command) -> Command:
    """``--concurrency`` and ``--max-batched-tokens``."""
    for option in reversed(_SCHEDULER_OPTIONS):
        command = option(command)
    return command


def _parse_policies(texts: tuple[str, ...]) -> tuple[NamedPolicy, ...]:
    policies = tuple(parse_policy(text) for text in texts)
    check_names_differ(policies)
    return policies


_SCHEDULER_OPTIONS: Final[list[Callable[..., Any]]] = [
    click.option(
        "--concurrency",
        type=positive,
        default=256,
        show_default=True,
        help="Maximum number of requests that run at the same time.",
    ),
    click.option(
        "--max-batched-tokens",
        type=positive,
        default=8192,
        show_default=True,
        help="Maximum number of tokens in one step.",
    ),
]
