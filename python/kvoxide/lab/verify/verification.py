"""One verification: units of every suite in turns, until time is up or something differs."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kvoxide.lab.verify.hashers.suite import Hashers
from kvoxide.lab.verify.managers.scenarios import FAMILIES
from kvoxide.lab.verify.managers.suite import Managers
from kvoxide.lab.verify.schedulers.suite import Schedulers
from kvoxide.lab.verify.suite import Covered, FirstDifference, Suite

SUITES: Final[Mapping[str, Suite]] = {
    suite.name: suite for suite in (Managers(), Schedulers(), Hashers())
}
MIN_CALLS_PER_KIND: Final = 1_000
"""The number of equal calls from which a kind of group counts as covered."""
MIN_CALLS_PER_SUITE: Final = 200


class Verification:
    """The units of a seed, in a fixed order, and the calls that they covered."""

    def __init__(self, seed: int) -> None:
        """Begin with the first unit of a seed."""
        self.seed = seed
        self.covered = {name: Covered() for name in SUITES}

    @property
    def num_calls(self) -> int:
        """Calls that were compared, including the one that differs."""
        return sum(covered.calls for covered in self.covered.values())

    @property
    def kinds(self) -> dict[str, int]:
        """The covered kinds of groups, with the number of calls for each."""
        counts = self.covered["managers"].kinds
        return {kind: n for kind, n in sorted(counts.items()) if n >= MIN_CALLS_PER_KIND}

    @property
    def too_little(self) -> list[str]:
        """The suites that compared too little to judge."""
        return [name for name, c in self.covered.items() if c.calls < MIN_CALLS_PER_SUITE]

    def run(
        self, seconds: float, on_unit: Callable[[], None] = lambda: None
    ) -> FirstDifference | None:
        """Compare for this many seconds. ``on_unit`` is called after each unit.

        Return the first difference, or None if there is none. Raises
        :class:`~kvoxide.lab.verify.suite.HarnessError`, or any other error.
        """
        deadline = time.monotonic() + seconds
        for suite, seed, family in self._units():
            try:
                self.covered[suite.name].add(suite.play(seed, family))
            except FirstDifference as found:
                self.covered[suite.name].add(found.covered)
                return found
            on_unit()
            if time.monotonic() >= deadline:
                break
        return None

    def _units(self) -> Iterator[tuple[Suite, int, str]]:
        for seed in itertools.count(self.seed):
            for family in FAMILIES:
                for suite in SUITES.values():
                    yield suite, seed, family
