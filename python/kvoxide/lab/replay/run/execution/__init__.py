"""Do the runs of a sweep: on the cores of this machine, or on a Ray cluster.

``interface`` declares executors, ``local`` and ``on_ray`` are the two implementations, and
``place`` parses the option that selects one. Both return the same results.
"""

from kvoxide.lab.replay.run.execution.interface import Executor, Incomplete, execute
from kvoxide.lab.replay.run.execution.local import Local
from kvoxide.lab.replay.run.execution.option import on_option
from kvoxide.lab.replay.run.execution.place import Place, executor_at, parse_place

__all__ = [
    "Executor",
    "Incomplete",
    "Local",
    "Place",
    "execute",
    "executor_at",
    "on_option",
    "parse_place",
]
