"""Run simulations, on this machine or on a Ray cluster, and return their outcomes.

``comparison`` and ``experiments`` plan the runs of the two commands. ``execution`` does them.
"""

from kvoxide.lab.replay.run.comparison import Comparison, Settings, compare
from kvoxide.lab.replay.run.execution import Executor, Incomplete, Place, executor_at, on_option
from kvoxide.lab.replay.run.experiments import Experiment, LongContexts, Prefixes, plan_experiment
from kvoxide.lab.replay.run.outcome import Outcome, Run
from kvoxide.lab.replay.run.planning import check_run, playable_policies
from kvoxide.lab.replay.run.progress import execute_watched, progress_bar
from kvoxide.lab.replay.run.workload import SharedTrace, Workload

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
