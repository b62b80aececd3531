"""Options that are left out are those of the server whose recording is played."""

from functools import wraps
from typing import Any, Final

import click
from click.core import ParameterSource

from kvoxide.model import CACHE_DTYPES
from kvoxide.replay.options import Command
from kvoxide.replay.reader import read_deployment
from kvoxide.replay.recording import Deployment

# Of the command, and of the deployment that was recorded.
_SCHEDULER: Final = {
    "concurrency": "max_running_requests",
    "max_batched_tokens": "max_batched_tokens",
}
_MODEL: Final = (
    "tensor_parallel",
    "pipeline_parallel",
    "cache_dtype",
    "block_size",
    "max_model_len",
)


def recorded_options(command: Command) -> Command:
    """Fill in the options below: those of the scheduler, and with ``--model`` how it is served."""

    @wraps(command)
    def with_recorded(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        recorded = read_deployment(options["source"].trace)
        if recorded is not None:
            options |= _scheduler(recorded)
            if options["model"] is not None:
                options |= _model(recorded, options)
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


def _model(recorded: Deployment, options: dict[str, Any]) -> dict[str, Any]:
    taken = {name: getattr(recorded, name) for name in _MODEL if options[name] is None}
    precision = taken.get("cache_dtype")
    if precision is not None and precision not in CACHE_DTYPES:
        raise click.UsageError(
            f"the recorded server had --kv-cache-dtype {precision}, which kvoxide does not plan;"
            f" give one of {', '.join(CACHE_DTYPES)}"
        )
    return taken
