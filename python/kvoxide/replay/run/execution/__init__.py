"""Where the runs of a sweep are done: on the cores of this machine, or on a Ray cluster.

``interface`` says what an executor does, ``local`` and ``on_ray`` are the two there are, and
``place`` is how one of them is named on the command line. Results are the same wherever they
come from.
"""

from kvoxide.replay.run.execution.interface import Executor, Incomplete, execute
from kvoxide.replay.run.execution.local import Local
from kvoxide.replay.run.execution.option import on_option
from kvoxide.replay.run.execution.place import Place, executor_at, parse_place

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
