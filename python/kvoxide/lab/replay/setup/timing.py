"""Define the options for time: arrivals, step times, instances and their router."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import click

from kvoxide._core import Serving, StepTime, Trace
from kvoxide.lab.options import Command, exclusive, gathered, parsed_with
from kvoxide.lab.replay.serving import StepFit, fit_to, parse_router, parse_step_time

# The name and the weights of a router.
Router = tuple[str, dict[str, float]]

FULL: Final = "full"
TRACE: Final = "trace"
CLOSED: Final = "closed"
RECORDED: Final = "recorded"
MAX_INSTANCES: Final = 1024
AS_RECORDED: Final[Router] = ("recorded", {})

_OPEN: Final = "For the recorded times, give --arrivals trace"


@dataclass(frozen=True)
class TimeOptions:
    """The options for times. An option that was not given is None."""

    arrivals: str
    speed: float | None
    step_time: StepTime | None
    fit: StepFit | None

    def serving(self, instances: int, router: Router | None) -> Serving | None:
        """How time passes; None where nothing asks for it.

        Raises :class:`click.UsageError` for options that do not go together.
        """
        if router is not None and instances == 1:
            raise click.UsageError("--router needs --instances of 2 or more")
        self.check()
        if not self._has_times and instances == 1 and self._step_time is None:
            return None
        return self.timed(instances, router)

    def timed(self, instances: int, router: Router | None) -> Serving:
        """Return how time passes, with a router in front of the instances."""
        name, weights = router or ("round-robin", {})
        speed = None if self.arrivals == FULL else self.speed or 1.0
        return Serving(
            step_time=self._step_time,
            speed=speed,
            closed_loop=self.arrivals == CLOSED,
            instances=instances,
            router=name,
            weights=weights,
            as_recorded=self._takes_recorded_times,
        )

    def check(self) -> None:
        """Raise :class:`click.UsageError` for options that do not go together."""
        if self.speed is not None and not self._has_times:
            raise click.UsageError("--speed needs --arrivals trace or --arrivals closed")
        if self.step_time is not None and self.fit is not None:
            raise exclusive("--step-time", "--fit")

    def for_sessions(self, trace: Trace, *, may_close: bool) -> "tuple[TimeOptions, str | None]":
        """Return the options with which the sessions of a trace are played, and a note on them.

        With ``may_close``, sessions are played in a closed loop if the trace has turns that follow
        an answer. The turns of the trace are given their waits.
        """
        if self.arrivals != CLOSED and not may_close:
            return self, None
        num_turns = trace.close_loop()
        if not num_turns and not trace.is_closed_loop:
            note = "no request continues a session, so --arrivals closed changes nothing"
            return self, note if self.arrivals == CLOSED else None
        note = (
            f"closed loop: {num_turns:,} turns of sessions arrive after the answers before them"
            if num_turns
            else "closed loop: requests that wait for earlier answers arrive after them"
        )
        return replace(self, arrivals=CLOSED), f"{note}. {_OPEN}"

    @property
    def _has_times(self) -> bool:
        return self.arrivals in (TRACE, CLOSED)

    @property
    def _takes_recorded_times(self) -> bool:
        is_other = self.step_time is not None or (self.fit and not self.fit.is_of_recording)
        return self.arrivals == RECORDED and not is_other

    @property
    def _step_time(self) -> StepTime | None:
        return self.step_time or (self.fit.step_time if self.fit else None)


def time_options(arrivals: str = FULL) -> Callable[[Command], Command]:
    """``--arrivals``, with the default that is given, ``--speed``, ``--step-time`` and ``--fit``;
    the command is given them as ``times``, :class:`TimeOptions`."""

    def with_options(command: Command) -> Command:
        command = gathered("times", TimeOptions)(command)
        for option in reversed((_arrivals_option(arrivals), *_TIME_OPTIONS)):
            command = option(command)
        return command

    return with_options


def instance_options(command: Command) -> Command:
    """``--instances`` and ``--router``, one of each."""
    for option in reversed(_INSTANCE_OPTIONS):
        command = option(command)
    return command


def _arrivals_option(default: str) -> Callable[[Command], Command]:
    return click.option(
        "--arrivals",
        type=click.Choice([FULL, TRACE, CLOSED, *([RECORDED] if default == FULL else [])]),
        default=default,
        show_default=f"closed for sessions, else {default}",
        help="When requests arrive. full: as soon as they can run. trace: at the trace's times."
        " closed: turns of sessions after the answers before them."
        + (" recorded: in the recorded server's steps." if default == FULL else ""),
    )


def _checked_speed(speed: float) -> float:
    Serving(speed=speed)
    return speed


_TIME_OPTIONS: Final = (
    click.option(
        "--speed",
        type=float,
        metavar="X",
        callback=parsed_with(_checked_speed),
        help="Replay this many seconds of the trace per second.  [default: 1]",
    ),
    click.option(
        "--step-time",
        metavar="PART=TIME,...",
        callback=parsed_with(parse_step_time),
        help="Duration of a step: base, plus a time per prefill token, context token and running"
        " request, as base=4ms,prefill=27us,context=34ns,running=10us.  [default: these values]",
    ),
    click.option(
        "--fit",
        metavar="FILE|FOLDER",
        callback=parsed_with(fit_to),
        help="Fit the step times to recorded steps.",
    ),
)
_INSTANCE_OPTIONS: Final = (
    click.option(
        "--instances",
        type=click.IntRange(min=1, max=MAX_INSTANCES),
        default=1,
        show_default=True,
        help="Number of instances. Each has its own pool and scheduler.",
    ),
    click.option(
        "--router",
        metavar="ROUTER",
        callback=parsed_with(parse_router),
        help="Router of requests: round-robin, least-loaded, session, recorded, prefix or scored;"
        " weights as prefix:overlap=2.  [default: round-robin]",
    ),
)
