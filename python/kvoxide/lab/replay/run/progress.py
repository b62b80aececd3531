"""The progress bar on standard error: on a terminal only."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from kvoxide.lab.replay.run.execution import Place, execute, executor_at
from kvoxide.lab.replay.run.outcome import Outcome, Run


def execute_watched(runs: Sequence[Run], place: Place | None, *, quiet: bool) -> list[Outcome]:
    """Do all runs at a place, as :func:`~kvoxide.lab.replay.run.execution.execute` does, and show a
    progress bar over the requests of all runs."""
    with executor_at(place) as executor, progress_bar(runs, quiet=quiet) as update:
        return execute(runs, update, executor)


class RateColumn(ProgressColumn):
    """Requests per second, lately; of all so far where a single update came, as in a short run."""

    def render(self, task: Task) -> Text:
        """Nothing before the first update."""
        speed = task.finished_speed or task.speed or _overall_speed(task)
        return Text(
            "" if speed is None else f"{speed:,.0f} requests/s", style="progress.data.speed"
        )


def _overall_speed(task: Task) -> float | None:
    return task.completed / task.elapsed if task.completed and task.elapsed else None


@contextmanager
def progress_bar(runs: Sequence[Run], *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar over the requests of all runs; the block gets a function that takes the number
    finished.

    Nothing is shown when ``quiet`` or when standard error is no terminal.
    """
    num_requests = sum(run.workload.trace.num_requests for run in runs)
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("replaying"),
        BarColumn(),
        TaskProgressColumn(),
        RateColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
    task = bar.add_task("", total=num_requests)
    with bar:
        yield lambda finished: bar.update(task, completed=finished)
