"""Turn the options of a command into settings: trace, model, limits, policies and times.

``trace``, ``model``, ``scheduler`` and ``timing`` define options. ``limits`` and ``served_model``
are values that options become. ``recording_defaults`` replaces defaults if a recording is played.
"""

from kvoxide.replay.setup.limits import (
    DEFAULT_BLOCKS,
    DEFAULT_PRESET,
    LimitOptions,
    parse_pool_sizes,
)
from kvoxide.replay.setup.model import model_options
from kvoxide.replay.setup.options import Command, gathered, parsed_with
from kvoxide.replay.setup.recording_defaults import is_default, recorded_options
from kvoxide.replay.setup.scheduler import policies_option, scheduler_options
from kvoxide.replay.setup.served_model import ServedModel
from kvoxide.replay.setup.timing import (
    AS_RECORDED,
    MAX_INSTANCES,
    RECORDED,
    Router,
    TimeOptions,
    instance_options,
    time_options,
)
from kvoxide.replay.setup.trace import TraceOptions, trace_options

__all__ = [
    "AS_RECORDED",
    "DEFAULT_BLOCKS",
    "DEFAULT_PRESET",
    "MAX_INSTANCES",
    "RECORDED",
    "Command",
    "LimitOptions",
    "Router",
    "ServedModel",
    "TimeOptions",
    "TraceOptions",
    "gathered",
    "instance_options",
    "is_default",
    "model_options",
    "parse_pool_sizes",
    "parsed_with",
    "policies_option",
    "recorded_options",
    "scheduler_options",
    "time_options",
    "trace_options",
]
