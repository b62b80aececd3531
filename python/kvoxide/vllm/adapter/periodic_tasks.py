"""Runs tasks at intervals. A task runs when a step of the scheduler begins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic


@dataclass
class PeriodicTask:
    """A function that runs each ``seconds``. It gets the time of :func:`time.monotonic`."""

    seconds: float
    run: Callable[[float], None]


def with_tasks(
    new_step_starts: Callable[[], None], tasks: Sequence[PeriodicTask]
) -> Callable[[], None]:
    """Return ``new_step_starts``, which also runs the tasks that are due. It reads the clock
    once."""
    began = monotonic()
    due = [began + task.seconds for task in tasks]
    next_due = min(due)

    def new_step_starts_and_run() -> None:
        nonlocal next_due
        new_step_starts()
        if (now := monotonic()) >= next_due:
            for number, task in enumerate(tasks):
                if now >= due[number]:
                    due[number] = now + task.seconds
                    task.run(now)
            next_due = min(due)

    return new_step_starts_and_run
