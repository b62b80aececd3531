"""Replays over time: when requests arrive, how long steps take, and several instances."""

from kvoxide.replay.serving.options import Router, ServingOptions, serving_options
from kvoxide.replay.serving.records import request_moments, serving_record, serving_settings_record
from kvoxide.replay.serving.step_fit import StepFit
from kvoxide.replay.serving.tables import print_serving, serving_tables, timed_outcomes

__all__ = [
    "Router",
    "ServingOptions",
    "StepFit",
    "print_serving",
    "request_moments",
    "serving_options",
    "serving_record",
    "serving_settings_record",
    "serving_tables",
    "timed_outcomes",
]
