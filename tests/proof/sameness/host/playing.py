"""Plays scenarios, and shrinks the differences."""

import dataclasses
import json
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kvoxide.vllm.environment.releases import installed_version

from .operations import Operation, operation_from_json
from .scenario import Scenario, random_scenario
from .sides import KvoxideSide, Side, VllmSide
from .traffic import Traffic
from .world import BothRaisedError, Difference, World

CALLS_PER_SCENARIO = 1_500
SECONDS_TO_SHRINK = 90.0
ENDED = "ended by an exception"
NO_ROOM = "no room"
EVICTED = "evicted"


@dataclasses.dataclass(frozen=True)
class Game:
    """Has the parts of a comparison: its name, scenarios, both sides of one, and the traffic."""

    name: str
    scenario: Callable[..., Any]
    random_scenario: Callable[[int], Any]
    sides: tuple[Callable[[Any], Side], Callable[[Any], Side]]
    traffic: Callable[[Any, int], Traffic]

    def world(self, scenario: Scenario, calls_per_check: int | None = None) -> World:
        """Return a new world of a scenario."""
        reference, other = self.sides
        return World(scenario, (reference(scenario), other(scenario)), calls_per_check)


HOST = Game("its host tier", Scenario, random_scenario, (VllmSide, KvoxideSide), Traffic)


@dataclasses.dataclass(frozen=True)
class Recording:
    """Everything that is needed to reproduce a difference."""

    scenario: Scenario
    operations: tuple[Operation, ...]
    game: Game = HOST

    def to_json(self, difference: Difference) -> str:
        lines = ",\n  ".join(json.dumps(operation.to_json()) for operation in self.operations)
        return (
            f'{{\n "scenario": {json.dumps(dataclasses.asdict(self.scenario))},\n'
            f' "operations": [\n  {lines}\n ],\n'
            f' "call": {json.dumps(difference.call)}, "aspect": {json.dumps(difference.aspect)},\n'
            f' "reference": {json.dumps(repr(difference.reference))},\n'
            f' "other": {json.dumps(repr(difference.other))}\n}}'
        )

    @classmethod
    def from_json(cls, text: str, game: Game = HOST) -> "Recording":
        document = json.loads(text)
        operations = tuple(map(operation_from_json, document["operations"]))
        return cls(game.scenario(**document["scenario"]), operations, game)


class DifferenceFound(Exception):
    def __init__(self, recording: Recording, difference: Difference) -> None:
        super().__init__(str(difference))
        self.recording, self.difference = recording, difference

    def text(self) -> str:
        return self.recording.to_json(self.difference)


def play_random(
    scenario: Scenario, num_calls: int = CALLS_PER_SCENARIO, game: Game = HOST
) -> Counter[str]:
    """Play a random scenario, and return which calls it made. Raises :class:`DifferenceFound`."""
    seen: Counter[str] = Counter()
    beginning = 0
    while sum(seen[name] for name in seen if name[0].isupper()) < num_calls:
        world, traffic = game.world(scenario), game.traffic(scenario, beginning)
        played: list[Operation] = []
        try:
            while world.num_calls < num_calls:
                operation = traffic.next(world)
                played.append(operation)
                answer = world.run(operation)
                traffic.answered(operation, answer)
                _note(operation, answer, seen)
            world.check_state("the last call")
        except BothRaisedError:
            seen[ENDED] += 1
        except Difference as difference:
            recording = Recording(scenario, tuple(played), game)
            raise DifferenceFound(recording, difference) from None
        seen += world.calls
        beginning += 1
    return seen


def _note(operation: Operation, answer: Any, seen: Counter[str]) -> None:
    if type(operation).__name__ == "PrepareStore":
        seen[NO_ROOM] += answer is None
        seen[EVICTED] += 0 if answer is None else len(answer[3])


def play_recorded(recording: Recording) -> Difference | None:
    """Play recorded operations, and return the difference. Operations that make no sense in their
    place are skipped."""
    world = recording.game.world(recording.scenario, calls_per_check=1)
    try:
        for operation in recording.operations:
            if operation.applies(world.reference):
                world.run(operation)
    except Difference as difference:
        return difference
    except BothRaisedError:
        pass
    return None


def shrunk(found: DifferenceFound) -> DifferenceFound:
    """Return the same difference with fewer operations and keys, or the difference itself if it
    does not occur again."""
    deadline = time.monotonic() + SECONDS_TO_SHRINK
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(found.recording):
            if time.monotonic() > deadline:
                return found
            difference = play_recorded(smaller)
            if difference is not None:
                found, is_smaller = DifferenceFound(smaller, difference), True
                break
    return found


def _smaller(recording: Recording) -> Iterator[Recording]:
    operations = recording.operations
    size = len(operations) // 2
    while size:
        for start in reversed(range(0, len(operations), size)):
            fewer = operations[:start] + operations[start + size :]
            yield dataclasses.replace(recording, operations=fewer)
        size //= 2
    for place, operation in enumerate(operations):
        for shorter in _with_fewer_keys(operation):
            changed = (*operations[:place], shorter, *operations[place + 1 :])
            yield dataclasses.replace(recording, operations=changed)


def _with_fewer_keys(operation: Any) -> Iterator[Operation]:
    for name in ("keys", "positions"):
        values = getattr(operation, name, ())
        for size in dict.fromkeys((len(values) // 2, 1)):
            for start in range(0, len(values) if size else 0, size or 1):
                fewer = values[:start] + values[start + size :]
                yield dataclasses.replace(operation, **{name: fewer})


def main(arguments: Namespace, game: Game = HOST) -> int:
    """Run the command, like :mod:`tests.proof.sameness` for the manager of the pool."""
    if arguments.replay:
        return max(_replay(path, game) for path in arguments.replay)
    num_scenarios = arguments.scenarios or max(1, arguments.calls // CALLS_PER_SCENARIO)
    calls_each = -(-arguments.calls // num_scenarios)
    seen: Counter[str] = Counter()
    num_differences, start = 0, time.monotonic()
    for done, seed in enumerate(range(arguments.seed, arguments.seed + num_scenarios), 1):
        try:
            seen += play_random(game.random_scenario(seed), calls_each, game)
        except DifferenceFound as found:
            print(f"seed {seed}: {found}\n{shrunk(found).text()}")
            num_differences += 1
            if not arguments.keep_going:
                return 1
        if done % 500 == 0:
            print(f"{done}/{num_scenarios} scenarios", file=sys.stderr)
    told = ", ".join(f"{name} {number:,}" for name, number in seen.most_common())
    num_calls = sum(number for name, number in seen.items() if name[0].isupper())
    print(f"vLLM {installed_version()} and {game.name}: {num_calls:,} calls: {told}")
    print(f"\n{num_differences} differences in {time.monotonic() - start:.0f} s")
    return 1 if num_differences else 0


def _replay(path: Path, game: Game) -> int:
    recording = Recording.from_json(path.read_text(encoding="utf-8"), game)
    difference = play_recorded(recording)
    if difference is None:
        print(f"{path}: no difference with vLLM {installed_version()}")
        return 0
    print(recording.to_json(difference))
    return 1
