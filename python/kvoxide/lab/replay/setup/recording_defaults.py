"""Fill in options that are not given with the values of the recorded server."""

from functools import wraps
from typing import Any, Final

import click
from click.core import ParameterSource

from kvoxide._core import ConfigError
from kvoxide.lab.model import CACHE_DTYPES
from kvoxide.lab.options import Command
from kvoxide.lab.replay.input import Deployment, read_deployment
from kvoxide.lab.replay.serving import fit_to_recording
from kvoxide.lab.replay.setup.timing import CLOSED, FULL, RECORDED, TRACE

# Of the command, and of the deployment that was recorded.
_SCHEDULER: Final = {
    "concurrency": "max_running_requests",
    "max_batched_tokens": "max_batched_tokens",
}
_POLICY: Final = ("policies", "groups", "preset", "model")
_MODEL: Final = (
    "tensor_parallel",
    "pipeline_parallel",
    "cache_dtype",
    "block_size",
    "max_model_len",
)


def recorded_options(command: Command) -> Command:
    """Fill in the options of the decorators below, if the trace is a recording: scheduler, times,
    the policy if the groups are the server's too, and how ``--model`` is served."""

    @wraps(command)
    def with_recorded(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        recorded = read_deployment(options["source"].trace)
        if recorded is not None:
            options |= _scheduler(recorded) | _policies(recorded) | _times(recorded, options)
            if options["enable_prefix_caching"] is None:
                options["enable_prefix_caching"] = recorded.prefix_caching
            if options["model"] is not None:
                options |= _model(recorded, options)
                options["recorded_block_size"] = recorded.attention_block_size
        return command(*args, **options)

    return with_recorded  # type: ignore[return-value]


def is_default(name: str) -> bool:
    """Whether nothing was given for an option of the command that runs."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.DEFAULT


def _scheduler(recorded: Deployment) -> dict[str, int]:
    return {
        option: getattr(recorded, name) for option, name in _SCHEDULER.items() if is_default(option)
    }


def _policies(recorded: Deployment) -> dict[str, Any]:
    """With other groups than the recorded ones an interval may mean nothing."""
    is_taken = recorded.policy is not None and all(map(is_default, _POLICY))
    return {"policies": (recorded.policy,)} if is_taken else {}


def _times(recorded: Deployment, options: dict[str, Any]) -> dict[str, Any]:
    """The recorded steps where they can be followed, else the recorded arrivals; with fitted times
    unless times are given. Where no times can be found a message says so."""
    if options["arrivals"] == FULL and not is_default("arrivals"):
        return {}
    has_times = options["step_time"] is not None or options["fit"] is not None
    follows = _follows(recorded, options) and not (has_times and is_default("arrivals"))
    arrivals = CLOSED if options["arrivals"] == CLOSED else RECORDED if follows else TRACE
    if has_times:
        return {"arrivals": arrivals}
    try:
        return {"arrivals": arrivals, "fit": fit_to_recording(options["source"].trace)}
    except ConfigError as error:
        if not options["quiet"]:
            click.echo(
                _without_steps(error, arrivals if follows else options["arrivals"]), err=True
            )
        return {"arrivals": arrivals} if follows else {}


def _follows(recorded: Deployment, options: dict[str, Any]) -> bool:
    """Whether requests run in the steps of the recorded server: its scheduler has to be the one
    that is played, with all of its requests."""
    if options["arrivals"] == RECORDED:
        return True
    is_wanted = options["arrivals"] == FULL and is_default("arrivals")
    scheduler = (*_SCHEDULER, "instances", "router", "speed")
    is_same = all(map(is_default, scheduler)) and options["source"].requests is None
    return is_wanted and is_same and recorded.has_schedule


def _without_steps(error: ConfigError, arrivals: str) -> str:
    instead = {
        FULL: "requests arrive as soon as they may run",
        RECORDED: "the server's steps are replayed without times",
    }.get(arrivals, "steps take the default times")
    return (
        f"no step times can be fitted to the recording: {error}; {instead}. For the server's own"
        " times, give --step-time or --fit"
    )


def _model(recorded: Deployment, options: dict[str, Any]) -> dict[str, Any]:
    taken = {name: getattr(recorded, name) for name in _MODEL if options[name] is None}
    precision = taken.get("cache_dtype")
    if precision is not None and precision not in CACHE_DTYPES:
        raise click.UsageError(
            f"the recorded server had --kv-cache-dtype {precision}, which kvoxide cannot plan; give"
            f" one of {', '.join(CACHE_DTYPES)}"
        )
    return taken
