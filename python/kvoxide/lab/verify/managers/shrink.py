"""Reduces a difference to few operations in a simple scenario."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any

from kvoxide.lab.verify.managers.compare import Difference
from kvoxide.lab.verify.managers.operations import Operation
from kvoxide.lab.verify.managers.runner import CONSTRUCTION, Reproduction, Sides, play_recorded
from kvoxide.lab.verify.managers.scenarios import Scenario

SECONDS = 90.0
PLAIN: tuple[dict[str, Any], ...] = (
    {"enable_events": False},
    {"log_stats": False},
    {"needs_zeroing": False},
    {"watermark": 0.0},
    {"num_hash_lookahead_tokens": 0, "ready_made_hashes": False},
    {"num_prefill_lookahead": 0},
    {"max_in_flight_tokens": None},
    {"retention_interval": None},
    {"use_eagle": False},
    {"collects_metrics": False},
)


def shrink(found: Reproduction, sides: Sides, seconds: float = SECONDS) -> Reproduction:
    """Return a smaller reproduction, or ``found`` itself if playing it again shows no difference.
    This happens if a fault depends on earlier scenarios."""
    shrinker = _Shrinker(found, sides, time.monotonic() + seconds)
    if not shrinker.try_smaller(found.scenario, found.operations):
        return found
    shrinker.drop_operations()
    shrinker.simplify_scenario()
    shrinker.drop_operations()
    return shrinker.smallest


class _Shrinker:
    def __init__(self, found: Reproduction, sides: Sides, deadline: float) -> None:
        self.smallest = found
        self._sides = sides
        self._deadline = deadline

    def drop_operations(self) -> None:
        size = len(self.smallest.operations) // 2
        while size >= 1:
            dropped = self._drop_runs_of(size)
            if not dropped or size > 1:
                size //= 2

    def _drop_runs_of(self, size: int) -> bool:
        """Drop runs of operations, from the end on, because operations after the cause of a
        difference are there."""
        dropped = False
        for start in reversed(range(0, len(self.smallest.operations), size)):
            operations = self.smallest.operations
            shorter = operations[:start] + operations[start + size :]
            dropped |= self.try_smaller(self.smallest.scenario, shorter)
        return dropped

    def simplify_scenario(self) -> None:
        simplified = True
        while simplified:
            simplified = any(
                self.try_smaller(simpler, self.smallest.operations)
                for simpler in _simpler_scenarios(self.smallest.scenario)
            )

    def try_smaller(self, scenario: Scenario, operations: Sequence[Operation]) -> bool:
        if time.monotonic() > self._deadline:
            return False
        difference = self._difference(scenario, operations)
        if difference is None:
            return False
        self.smallest = Reproduction(scenario, tuple(operations), difference)
        return True

    def _difference(self, scenario: Scenario, operations: Sequence[Operation]) -> Difference | None:
        try:
            self._sides.reference(scenario)
        except Exception:
            return None
        difference = play_recorded(scenario, operations, self._sides)
        if (
            difference is not None
            and difference.call == CONSTRUCTION != self.smallest.difference.call
        ):
            return None
        return difference


def _simpler_scenarios(scenario: Scenario) -> Iterator[Scenario]:
    if len(scenario.groups) > 1:
        yield from (scenario.without_group(index) for index in range(len(scenario.groups)))
    for plain in PLAIN:
        simpler = dataclasses.replace(scenario, **plain)
        if simpler != scenario:
            yield simpler
