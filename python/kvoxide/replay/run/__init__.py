"""Run simulations, on this machine or on a Ray cluster, and return their outcomes.

``comparison`` and ``experiments`` plan the runs of the two commands. ``execution`` does them.
"""

from kvoxide.replay.run.comparison import Comparison, Settings, compare
from kvoxide.replay.run.execution import Executor, Incomplete, Place, executor_at, on_option
from kvoxide.replay.run.experiments import Experiment, LongContexts, Prefixes, plan_experiment
from kvoxide.replay.run.outcome import Outcome, Run
from kvoxide.replay.run.planning import check_run, playable_policies
from kvoxide.replay.run.progress import execute_watched, progress_bar
from kvoxide.replay.run.workload import SharedTrace, Workload

__all__ = [
    "Comparison",
    "Executor",
    "Experiment",
    "Incomplete",
    "LongContexts",
    "Outcome",
    "Place",
    "Prefixes",
    "Run",
    "Settings",
    "SharedTrace",
    "Workload",
    "check_run",
    "compare",
    "execute_watched",
    "executor_at",
    "on_option",
    "plan_experiment",
    "playable_policies",
    "progress_bar",
]
