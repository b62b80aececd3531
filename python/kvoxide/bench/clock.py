"""Timing of calls that take turns.

Times are CPU time of the whole process: what other processes do costs nothing, and no thread goes
uncounted. A step that is repeated in several rounds counts with its fastest round.
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
    """Nanoseconds that a call takes, and its result, which is not dropped within that time."""
    start = time.process_time_ns()
    result = call(*args, **kwargs)
    return time.process_time_ns() - start, result


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection inside, whichever side's objects would have set it off."""
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
        """Start without any."""
        self._fastest: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)

    def add(self, row: str, side: str, nanoseconds: float, step: int = 0) -> None:
        """One round of a step; a row has several steps if they are different work."""
        steps = self._fastest[row, side]
        steps[step] = min(nanoseconds, steps.get(step, nanoseconds))

    def microseconds(self, row: str, side: str) -> float | None:
        """Mean over the steps of the fastest round of each; None if nothing was measured."""
        steps = self._fastest.get((row, side))
        return sum(steps.values()) / len(steps) / 1000 if steps else None
