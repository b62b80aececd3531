"""Describe how long steps take and how requests reach several instances.

``notation`` parses step times and routers. ``fitting`` and ``step_fit`` fit step times to recorded
steps.
"""

from kvoxide.lab.replay.serving.fitting import fit_to, fit_to_recording
from kvoxide.lab.replay.serving.notation import (
    parse_duration,
    parse_pairs,
    parse_router,
    parse_step_time,
)
from kvoxide.lab.replay.serving.step_fit import StepFit

__all__ = [
    "StepFit",
    "fit_to",
    "fit_to_recording",
    "parse_duration",
    "parse_pairs",
    "parse_router",
    "parse_step_time",
]
