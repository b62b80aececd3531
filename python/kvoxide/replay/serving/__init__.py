"""Replays over time: when requests arrive, how long steps take, and several instances."""

from kvoxide.replay.serving.fitting import fit_to_recording
from kvoxide.replay.serving.notation import parse_router
from kvoxide.replay.serving.options import (
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
from kvoxide.replay.serving.records import request_moments, serving_record, serving_settings_record
from kvoxide.replay.serving.step_fit import StepFit
from kvoxide.replay.serving.tables import print_serving, serving_tables, timed_outcomes

__all__ = [
    "AS_RECORDED",
    "FULL",
    "MAX_INSTANCES",
    "RECORDED",
    "TRACE",
    "Router",
    "StepFit",
    "TimeOptions",
    "fit_to_recording",
    "instance_options",
    "parse_router",
    "print_serving",
    "request_moments",
    "serving_record",
    "serving_settings_record",
    "serving_tables",
    "time_options",
    "timed_outcomes",
]
