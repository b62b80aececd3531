"""Fit step times to files of steps: named files, or the files of a recording."""

import glob
from dataclasses import replace
from pathlib import Path

from kvoxide._core import ConfigError
from kvoxide.lab.replay.input import read_steps
from kvoxide.lab.replay.serving.step_fit import StepFit, fit_step_time
from kvoxide.recording_format import REQUESTS, STEPS, pattern


def fit_to(name: str) -> StepFit:
    """The step times of a file or a folder. Raises :class:`~kvoxide._core.ConfigError`."""
    try:
        return fit_step_time(read_steps(Path(name)))
    except ConfigError as error:
        raise ConfigError(f"{name!r}: {error}") from error


def fit_to_recording(name: str) -> StepFit:
    """The step times of the server that recorded ``name``, a folder or one of its files of
    requests. Raises :class:`~kvoxide._core.ConfigError`."""
    path = Path(name)
    if path.is_dir():
        fit = fit_step_time(read_steps(path))
    else:
        fit = fit_step_time(read_steps(path.parent, _steps_beside(path)))
    return replace(fit, is_of_recording=True)


def _steps_beside(path: Path) -> str:
    """The names of the files of steps that the process wrote that wrote this file of requests."""
    rank_and_process = path.name.removeprefix(f"{REQUESTS}-").rpartition("-")[0]
    return pattern(f"{STEPS}-{glob.escape(rank_and_process)}")
