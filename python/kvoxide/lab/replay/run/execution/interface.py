"""Declare executors, and the error of an executor that cannot continue."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Protocol

from kvoxide._core import KvoxideError
from kvoxide.lab.replay.run.outcome import Outcome, Run

# The outcome of a run with its place among the runs, as runs end.
Outcomes = Generator[tuple[int, Outcome], None, None]


class Executor(Protocol):
    """Does runs, as many at a time as there is room for."""

    def outcomes(
        self,
        runs: Sequence[Run],
        on_progress: Callable[[int], None],
        is_wanted: Callable[[int], bool] = lambda _: True,
    ) -> Outcomes:
        """Start the runs in their order, and yield each outcome when its run ends.

        ``on_progress`` is called about five times a second with the requests finished by all runs.
        ``is_wanted`` is called with a run's place before the run starts, perhaps in another thread.
        A run that is not wanted has no outcome. All runs stop if the generator is closed, if a run
        raises an error, which is raised here, and on KeyboardInterrupt. Runs on a cluster stop
        when the cluster is left. Raises :class:`Incomplete` if the executor cannot continue.
        """


class Incomplete(KvoxideError):
    """Runs could not be done for a reason that is not theirs. ``finished`` are the outcomes of
    those that were, in the order of the runs."""

    def __init__(self, message: str) -> None:
        """Nothing is finished yet."""
        super().__init__(message)
        self.finished: list[Outcome] = []


def execute(
    runs: Sequence[Run], on_progress: Callable[[int], None], executor: Executor
) -> list[Outcome]:
    """Do all runs; the outcomes are in the runs' order. Raises as :meth:`Executor.outcomes`."""
    finished: dict[int, Outcome] = {}
    try:
        with closing(executor.outcomes(runs, on_progress)) as outcomes:
            finished.update(outcomes)
    except Incomplete as error:
        error.finished = [finished[at] for at in sorted(finished)]
        raise
    return [finished[at] for at in range(len(runs))]
