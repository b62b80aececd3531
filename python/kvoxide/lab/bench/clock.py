"""Times calls that take turns.

Times are CPU time of the whole process. So other processes do not count, and all threads of this
one do. A step that is repeated in several rounds counts with its fastest round.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def timed(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[int, T]:
    """Return the nanoseconds that a call takes, and its result. Dropping the result is not
    timed."""
    start = time.process_time_ns()
    result = call(*args, **kwargs)
    return time.process_time_ns() - start, result


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection, so that it does not hit a side by chance."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


class Samples:
    """Nanoseconds by row, side, step and round."""

    def __init__(self) -> None:
        """Start without samples."""
        self._fastest: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)

    def add(self, row: str, side: str, nanoseconds: float, step: int = 0) -> None:
        """Add one round of a step. A row has several steps if they do different work."""
        steps = self._fastest[row, side]
        steps[step] = min(nanoseconds, steps.get(step, nanoseconds))

    def microseconds(self, row: str, side: str) -> float | None:
        """Return the mean over the steps of the fastest round of each. Return None if nothing was
        measured."""
        steps = self._fastest.get((row, side))
        return sum(steps.values()) / len(steps) / 1000 if steps else None
