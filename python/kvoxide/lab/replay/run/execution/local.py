"""Runs side by side on the cores of this machine."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Final

from kvoxide._core import Simulation, SimulationResult
from kvoxide.lab.replay.run.execution.interface import Outcomes
from kvoxide.lab.replay.run.outcome import Outcome, Run

_POLL_SECONDS: Final = 0.2


class Local:
    """An executor of threads: simulations run without the GIL."""

    def outcomes(
        self,
        runs: Sequence[Run],
        on_progress: Callable[[int], None],
        is_wanted: Callable[[int], bool] = lambda _: True,
    ) -> Outcomes:
        """As :meth:`~kvoxide.lab.replay.run.execution.interface.Executor.outcomes` says."""
        tasks = [_Task(run, partial(is_wanted, at)) for at, run in enumerate(runs)]
        with ThreadPoolExecutor(num_cores()) as threads:
            futures = {threads.submit(task): at for at, task in enumerate(tasks)}
            try:
                pending = set(futures)
                while pending:
                    done, pending = wait(pending, _POLL_SECONDS, FIRST_COMPLETED)
                    for future in done:
                        result, at = future.result(), futures[future]
                        if result is not None:
                            yield at, Outcome(runs[at], result)
                    on_progress(sum(task.num_finished() for task in tasks))
            finally:
                _stop(tasks, list(futures))


def num_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Task:
    """One run in a worker thread, watched and stopped from the main thread."""

    def __init__(self, run: Run, is_wanted: Callable[[], bool]) -> None:
        self._run = run
        self._is_wanted = is_wanted
        self._simulation: Simulation | None = None
        self._num_finished = 0
        self._stopped = False

    def __call__(self) -> SimulationResult | None:
        result = self._result()
        self._num_finished = self._run.workload.trace.num_requests
        self._simulation = None
        return result

    def _result(self) -> SimulationResult | None:
        run = self._run
        if not self._is_wanted():
            run.workload.trace.drop_user()
            return None
        with run.workload.trace.borrowed() as trace:
            self._simulation = run.simulation(trace)
            if self._stopped:
                raise KeyboardInterrupt
            return self._simulation.run()

    def num_finished(self) -> int:
        simulation = self._simulation
        return self._num_finished if simulation is None else simulation.progress()

    def stop(self) -> None:
        self._stopped = True
        if (simulation := self._simulation) is not None:
            simulation.cancel()


def _stop(tasks: Sequence[_Task], futures: Sequence[Future[SimulationResult | None]]) -> None:
    for future in futures:
        future.cancel()
    pending = {future for future in futures if not future.done()}
    # Repeated, because a simulation that is still being created misses the first call.
    while pending:
        for task in tasks:
            task.stop()
        pending = wait(pending, _POLL_SECONDS).not_done
