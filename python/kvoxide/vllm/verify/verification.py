"""One verification: units of every part in turns, until time is up or something differs."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kvoxide.vllm.verify.hashers.part import Hashers
from kvoxide.vllm.verify.managers.part import Managers
from kvoxide.vllm.verify.managers.scenarios import FAMILIES
from kvoxide.vllm.verify.part import Covered, FirstDifference, Part
from kvoxide.vllm.verify.schedulers.part import Schedulers

PARTS: Final[Mapping[str, Part]] = {
    part.name: part for part in (Managers(), Schedulers(), Hashers())
}
MIN_CALLS_PER_KIND: Final = 1_000
"""Calls that were the same before a kind of group counts as covered."""
MIN_CALLS_PER_PART: Final = 200


class Verification:
    """The units of a seed, in a fixed order, and what they covered."""

    def __init__(self, seed: int) -> None:
        """Begin at a seed."""
        self.seed = seed
        self.covered = {name: Covered() for name in PARTS}

    @property
    def num_calls(self) -> int:
        """Calls that were compared, the one that differs among them."""
        return sum(covered.calls for covered in self.covered.values())

    @property
    def kinds(self) -> dict[str, int]:
        """The kinds of groups that are covered, with the calls that met them."""
        counts = self.covered["managers"].kinds
        return {kind: n for kind, n in sorted(counts.items()) if n >= MIN_CALLS_PER_KIND}

    @property
    def too_little(self) -> list[str]:
        """The parts in which too little was compared to say anything."""
        return [name for name, c in self.covered.items() if c.calls < MIN_CALLS_PER_PART]

    def run(
        self, seconds: float, on_unit: Callable[[], None] = lambda: None
    ) -> FirstDifference | None:
        """Compare for so long; ``on_unit`` is called after each unit.

        Returns the first difference, None if there is none. Raises
        :class:`~kvoxide.vllm.verify.part.HarnessError`, or whatever else goes wrong.
        """
        deadline = time.monotonic() + seconds
        for part, seed, family in self._units():
            try:
                self.covered[part.name].add(part.play(seed, family))
            except FirstDifference as found:
                self.covered[part.name].add(found.covered)
                return found
            on_unit()
            if time.monotonic() >= deadline:
                break
        return None

    def _units(self) -> Iterator[tuple[Part, int, str]]:
        for seed in itertools.count(self.seed):
            for family in FAMILIES:
                for part in PARTS.values():
                    yield part, seed, family
