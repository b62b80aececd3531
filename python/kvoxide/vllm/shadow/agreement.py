"""Counts the calls that shadow mode compared, and logs at intervals that there is no difference."""

from time import monotonic
from typing import Final, Literal, TypeAlias

from kvoxide.vllm.environment import (
    SHADOW_PARTS,
    counters,
    log_shadow_agreed,
    log_shadow_agrees,
)

Part: TypeAlias = Literal["manager", "host"]

FIRST_SECONDS: Final = 60.0
SECONDS: Final = 600.0
"""The first message comes this long after the start, and the others at this interval."""

CALLS: Final = "kvoxide_shadow_calls_total"
DIFFERENCES: Final = "kvoxide_shadow_differences_total"


class Agreement:
    """The calls that were compared for one part of a server.

    The metrics begin at 0, so that a server without differences has them too.
    """

    def __init__(self, part: Part) -> None:
        """Begin to count the calls of ``part``."""
        self.num_calls = 0
        self._part: Part = part
        self._name = SHADOW_PARTS[part]
        self._next_message = monotonic() + FIRST_SECONDS
        self._has_ended = False
        for metric in (CALLS, DIFFERENCES):
            counters.add(metric, 0, part=part)

    def count_equal(self) -> None:
        """Count a call with equal answers. Log the number of calls if a message is due."""
        self._count_call()
        now = monotonic()
        if now >= self._next_message:
            self._next_message = now + SECONDS
            log_shadow_agrees(self._name, self.num_calls)

    def count_different(self) -> None:
        """Count a call with different answers, which ends the shadow."""
        self._count_call()
        counters.add(DIFFERENCES, part=self._part)
        self._has_ended = True

    def end(self) -> None:
        """Log the number of calls at the end of the server, if there was no difference."""
        if not self._has_ended:
            self._has_ended = True
            log_shadow_agreed(self._name, self.num_calls)

    def _count_call(self) -> None:
        self.num_calls += 1
        counters.add(CALLS, part=self._part)
