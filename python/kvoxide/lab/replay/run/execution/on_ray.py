"""Runs as tasks of a Ray cluster."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import ray
from ray.exceptions import RayError, RayTaskError

from kvoxide._core import KvoxideError, SimulationResult, Trace
from kvoxide.lab.replay.run.execution.cluster import Cluster
from kvoxide.lab.replay.run.execution.interface import Incomplete, Outcomes
from kvoxide.lab.replay.run.outcome import Outcome, Run
from kvoxide.lab.replay.run.workload import SharedTrace

_POLL_SECONDS: Final = 0.2
# How often a run is started again whose worker or node died.
_MAX_RETRIES: Final = 3
# More than run at a time, so that no processor waits for the next one.
_TASKS_PER_CPU: Final = 2


class OnRay:
    """An executor on a cluster whose nodes have the same kvoxide. Each trace is sent once.

    Tasks that are left end with the process's place in the cluster. They are not cancelled: where
    Ray starts a task at that moment, it takes the end of the task for an error of its own, and ends
    this process (Ray 2.60, "Tried to complete task that was not pending").
    """

    def __init__(self, cluster: Cluster) -> None:
        """On a cluster that was joined."""
        self._cluster = cluster

    def outcomes(
        self,
        runs: Sequence[Run],
        on_progress: Callable[[int], None],
        is_wanted: Callable[[int], bool] = lambda _: True,
    ) -> Outcomes:
        """As :meth:`~kvoxide.lab.replay.run.execution.interface.Executor.outcomes` says."""
        tasks = _Tasks(runs, is_wanted)
        try:
            while tasks.start(_TASKS_PER_CPU * self._cluster.num_cpus):
                ended = tasks.ended()
                for at, result in ended:
                    yield at, Outcome(runs[at], result)
                self._cluster.require_presence()
                on_progress(tasks.num_finished)
            on_progress(tasks.num_finished)
        except (RayError, ConnectionError) as error:
            raise Incomplete(f"{self._cluster.name} failed: {_first_line(error)}") from error


class _Tasks:
    """The runs that wait, and the tasks of those that do not."""

    def __init__(self, runs: Sequence[Run], is_wanted: Callable[[int], bool]) -> None:
        self._runs = runs
        self._is_wanted = is_wanted
        self._waiting = deque(range(len(runs)))
        self._pending: dict[Any, int] = {}
        self._traces: dict[SharedTrace, Any] = {}
        self._play = ray.remote(max_retries=_MAX_RETRIES, num_cpus=1)(simulate)
        # Requests of runs that ended or were not wanted.
        self.num_finished = 0

    def start(self, most: int) -> bool:
        """Have up to so many tasks; False if there is nothing left to do."""
        while self._waiting and len(self._pending) < most:
            at = self._waiting.popleft()
            if self._is_wanted(at):
                self._pending[self._started(self._runs[at])] = at
            else:
                self._runs[at].workload.trace.drop_user()
                self._count_finished(at)
        return bool(self._pending)

    def ended(self) -> list[tuple[int, SimulationResult]]:
        """The results of tasks that have ended, waiting a little for one of them."""
        ready, _ = ray.wait(list(self._pending), num_returns=1, timeout=_POLL_SECONDS)
        return [(self._pending[task], self._result(task)) for task in ready]

    def _started(self, run: Run) -> Any:  # noqa: ANN401
        shared = run.workload.trace
        if shared not in self._traces:
            with shared.borrowed() as trace:
                self._traces[shared] = ray.put(trace)
        else:
            shared.drop_user()
        workload = replace(run.workload, trace=SharedTrace.of(Trace()))
        return self._play.remote(self._traces[shared], replace(run, workload=workload))

    def _result(self, task: Any) -> SimulationResult:  # noqa: ANN401
        try:
            result: SimulationResult = ray.get(task)
        except RayTaskError as error:
            raise _error_of_run(error) from error
        self._count_finished(self._pending.pop(task))
        return result

    def _count_finished(self, at: int) -> None:
        shared = self._runs[at].workload.trace
        self.num_finished += shared.num_requests
        left = (
            self._runs[other].workload.trace for other in (*self._waiting, *self._pending.values())
        )
        if all(other is not shared for other in left):
            self._traces.pop(shared, None)


def simulate(trace: Trace, run: Run) -> SimulationResult:
    """Do a run in a worker. Its workload comes without its trace."""
    return run.simulation(trace).run()


def _error_of_run(error: RayTaskError) -> Exception:
    """Return the exception of the run, or the reason why the worker did not start it."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, KvoxideError | OverflowError):
        return cause
    if isinstance(cause, ModuleNotFoundError):
        return Incomplete(f"a node of the cluster lacks kvoxide: {cause}")
    return Incomplete(f"a worker of the cluster failed: {cause or _first_line(error)}")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
