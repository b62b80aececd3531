"""Turn the options of a command into settings: trace, model, limits, policies and times.

``trace``, ``model``, ``scheduler``, ``timing`` and ``host_memory`` define options. ``limits``
and ``served_model`` are values that options become. ``recording_defaults`` replaces
defaults if a recording is played.
"""

from kvoxide.lab.replay.setup.host_memory import HostOptions, host_options
from kvoxide.lab.replay.setup.limits import (
    DEFAULT_BLOCKS,
    DEFAULT_PRESET,
    LimitOptions,
    parse_pool_sizes,
)
from kvoxide.lab.replay.setup.model import model_options
from kvoxide.lab.replay.setup.recording_defaults import is_default, recorded_options
from kvoxide.lab.replay.setup.scheduler import policies_option, scheduler_options
from kvoxide.lab.replay.setup.served_model import ServedModel
from kvoxide.lab.replay.setup.timing import (
    AS_RECORDED,
    FULL,
    MAX_INSTANCES,
    RECORDED,
    TRACE,
    Router,
    TimeOptions,
    instance_options,
    time_options,
)
from kvoxide.lab.replay.setup.trace import TraceOptions, trace_options

__all__ = [
    "AS_RECORDED",
    "DEFAULT_BLOCKS",
    "DEFAULT_PRESET",
    "FULL",
    "MAX_INSTANCES",
    "RECORDED",
    "TRACE",
    "HostOptions",
    "LimitOptions",
    "Router",
    "ServedModel",
    "TimeOptions",
    "TraceOptions",
    "host_options",
    "instance_options",
    "is_default",
    "model_options",
    "parse_pool_sizes",
    "policies_option",
    "recorded_options",
    "scheduler_options",
    "time_options",
    "trace_options",
]
