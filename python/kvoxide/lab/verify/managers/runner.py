"""Plays scenarios: random ones, or recorded operations again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvoxide.lab.verify import installed
from kvoxide.lab.verify.managers.compare import Difference
from kvoxide.lab.verify.managers.coverage import Coverage
from kvoxide.lab.verify.managers.driver import MakeDriver
from kvoxide.lab.verify.managers.operations import Operation, operation_from_json
from kvoxide.lab.verify.managers.printing import json_text, where_unequal
from kvoxide.lab.verify.managers.scenarios import DEFAULT_FAMILIES, Scenario, random_scenario
from kvoxide.lab.verify.managers.traffic import Traffic
from kvoxide.lab.verify.managers.world import BothRaised, World

CALLS_PER_SCENARIO = 1500
OPERATIONS_PER_CALL = 3
CONSTRUCTION = "construction"
ENDED = "traffic ended by an exception"


@dataclass(frozen=True)
class Sides:
    """vLLM's manager, and the manager that must behave in the same way."""

    reference: MakeDriver
    other: MakeDriver


@dataclass(frozen=True)
class Reproduction:
    """Everything that is needed to reproduce a difference."""

    scenario: Scenario
    operations: tuple[Operation, ...]
    difference: Difference

    def document(self) -> dict[str, Any]:
        difference = self.difference
        reference, other = where_unequal(difference.reference, difference.other)
        return {
            "scenario": self.scenario.to_json(),
            "operations": [operation.to_json() for operation in self.operations],
            "call": difference.call,
            "aspect": difference.aspect,
            "reference": reference,
            "other": other,
        }

    def to_json(self) -> str:
        return json_text(self.document())


class DifferenceFound(Exception):
    """A difference. ``coverage`` is what was compared without a difference before."""

    def __init__(self, reproduction: Reproduction, coverage: Coverage) -> None:
        super().__init__(str(reproduction.difference))
        self.reproduction = reproduction
        self.coverage = coverage


def play_random(
    seed: int,
    sides: Sides,
    num_calls: int = CALLS_PER_SCENARIO,
    calls_per_check: int | None = None,
    families: Sequence[str] = DEFAULT_FAMILIES,
) -> Coverage:
    scenario = installed.fitted(random_scenario(seed, families))
    return play(scenario, sides, num_calls, calls_per_check)


def play(
    scenario: Scenario, sides: Sides, num_calls: int, calls_per_check: int | None = None
) -> Coverage:
    """Play random traffic in one scenario. Begin the scenario again after an exception.

    Results are compared after every call. The whole state is compared after every
    ``calls_per_check``; the default depends on the pool's size. Raises DifferenceFound with the
    operations since the last beginning.
    """
    coverage = Coverage()
    coverage.note_scenario(scenario)
    is_ended = True
    while is_ended and coverage.num_calls < num_calls:
        played: list[Operation] = []
        world: World | None = None
        try:
            world = _make_world(scenario, sides, calls_per_check)
            beginning = coverage.seen[ENDED]
            traffic = Traffic(scenario, beginning, with_inside=world.has_vllm_interface)
            is_ended = _play_traffic(world, traffic, played, num_calls - coverage.num_calls)
        except Difference as difference:
            if world is not None:
                coverage.add(world.coverage)
            reproduction = Reproduction(scenario, tuple(played), difference)
            raise DifferenceFound(reproduction, coverage) from None
        coverage.add(world.coverage)
    return coverage


def _play_traffic(world: World, traffic: Traffic, played: list[Operation], num_calls: int) -> bool:
    """Play operations until the calls are used up. Return whether an exception ended it."""
    try:
        while world.num_calls < num_calls and len(played) < num_calls * OPERATIONS_PER_CALL:
            operation = installed.fitted(traffic.next(world))
            played.append(operation)
            _run(operation, world)
        world.check_state("the last call")
    except BothRaised:
        world.coverage.seen[ENDED] += 1
        return True
    return False


def _run(operation: Operation, world: World) -> None:
    world.coverage.operations[type(operation).__name__] += 1
    operation.run(world)


def play_recorded(
    scenario: Scenario, operations: Sequence[Operation], sides: Sides
) -> Difference | None:
    """Play recorded operations, and return the difference. Operations that make no sense in their
    place are skipped."""
    try:
        world = _make_world(scenario, sides, calls_per_check=1)
        for operation in operations:
            if operation.applies(world):
                _run(operation, world)
    except Difference as difference:
        return difference
    except BothRaised:
        return None
    return None


def _make_world(scenario: Scenario, sides: Sides, calls_per_check: int | None) -> World:
    reference = sides.reference(scenario)
    try:
        other = sides.other(scenario)
    except Exception as error:
        raise Difference(CONSTRUCTION, "refused", None, repr(error)) from error
    return World(scenario, reference, other, calls_per_check=calls_per_check)


def recording_from_json(text: str) -> tuple[Scenario, list[Operation]]:
    return recording_from(json.loads(text))


def recording_from(fields: dict[str, Any]) -> tuple[Scenario, list[Operation]]:
    """Return the scenario and operations of a recording. Raises KeyError, TypeError or ValueError
    for anything else."""
    scenario = installed.fitted(Scenario.from_json(fields["scenario"]))
    operations = [operation_from_json(operation) for operation in fields["operations"]]
    return scenario, [installed.fitted(operation) for operation in operations]
