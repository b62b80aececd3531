"""A cluster that fails in the middle of a sweep."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from kvoxide.lab.replay.run import Incomplete, Place, Run, progress
from kvoxide.lab.replay.run.execution.interface import Outcomes
from kvoxide.lab.replay.run.execution.local import Local

MESSAGE = "the cluster <is> gone"


@dataclass(frozen=True)
class _Failing:
    """An executor that does some of the runs and then fails."""

    is_done: Callable[[Run], bool]

    def outcomes(
        self,
        runs: Sequence[Run],
        on_progress: Callable[[int], None],
        is_wanted: Callable[[int], bool] = lambda _: True,
    ) -> Outcomes:
        done = Local().outcomes(
            runs, on_progress, lambda at: is_wanted(at) and self.is_done(runs[at])
        )
        yield from done
        raise Incomplete(MESSAGE)


def fail_after(monkeypatch: pytest.MonkeyPatch, is_done: Callable[[Run], bool]) -> None:
    """Make commands end with :data:`MESSAGE` after the runs for which ``is_done`` returns true."""

    @contextmanager
    def executor_at(_: Place | None) -> Iterator[_Failing]:
        yield _Failing(is_done)

    monkeypatch.setattr(progress, "executor_at", executor_at)
