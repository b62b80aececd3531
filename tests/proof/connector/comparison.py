"""Sends the same requests, ends, resets and steps to both sides, and compares them."""

import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvoxide.vllm.offload import native_class

from ..sameness.host.sides import state_of_kvoxides, state_of_vllms
from .memory import Prefixes, WrongBytesError
from .observed import Told, plain_state
from .scenario import Scenario
from .traffic import Traffic
from .world import World

STEPS_PER_TIER_CHECK = 25


class Difference(Exception):
    """The two sides differ."""


class Comparison:
    """Two sides with the same traffic. ``counts`` has the number of each event."""

    def __init__(self, scenario: Scenario) -> None:
        prefixes = Prefixes()
        self.sides = [World(scenario, prefixes, is_ours) for is_ours in (False, True)]
        self._scenario = scenario
        self.counts: Counter[str] = Counter()
        self._traffic = Traffic(scenario)

    def run(self, num_steps: int) -> Counter[str]:
        """Make up to ``num_steps``. Return the events, and what the workers checked."""
        while self.counts["steps"] < num_steps and self.step():
            pass
        vllms = self.sides[0]
        self.counts["checked blocks"] = sum(rank.memory.num_checked for rank in vllms.ranks)
        return self.counts + vllms.counts

    def step(self) -> bool:
        """Let something happen, then make a step on each side. Return whether they can continue:
        vLLM's own connector may raise."""
        for happens in self._traffic.draw(self.sides[0]):
            self._both("what happens", happens)
        told = self._both("step", World.step)
        if isinstance(told, Raised):
            self._note_end(*told.args)
            return False
        self.counts.update(told.counts())
        for vllms, ours in zip(*(side.connectors for side in self.sides), strict=True):
            _require_same("state", plain_state(vllms), plain_state(ours))
            if self.counts["steps"] % STEPS_PER_TIER_CHECK == 0:
                _require_same("tier", _tier(vllms.manager), _tier(ours.manager))
        return True

    def _note_end(self, error: str, message: str) -> None:
        if error == WrongBytesError.__name__ and not self._scenario.may_load_wrong_bytes:
            raise Difference(f"what is loaded and what was stored: {message}")
        self.counts[f"run ended by {error}, {message.split()[0]}"] += 1

    def _both(self, what: str, call: Callable[[World], Any]) -> Any:
        vllms, ours = (_outcome(call, side) for side in self.sides)
        _require_same(what, vllms, ours)
        return vllms


class Raised(Exception):
    """An exception. Two of the same class are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Raised) and self.args[0] == other.args[0]

    def __hash__(self) -> int:
        return hash(self.args[0])


def _outcome(call: Callable[[World], Any], side: World) -> Any:
    try:
        return call(side)
    except (AssertionError, AttributeError, KeyError, ValueError) as error:
        (*_, frame) = traceback.extract_tb(error.__traceback__)
        return Raised(type(error).__name__, f"{Path(frame.filename).name}:{frame.lineno} {error}")


def _tier(manager: Any) -> Any:
    is_ours = isinstance(manager, native_class())
    return state_of_kvoxides(manager.tier) if is_ours else state_of_vllms(manager)


def _require_same(what: str, vllms: Any, ours: Any) -> None:
    if vllms == ours:
        return
    vllms, ours = (vars(each) if isinstance(each, Told) else each for each in (vllms, ours))
    if isinstance(vllms, dict) and isinstance(ours, dict):
        for name in vllms:
            if vllms[name] != ours.get(name):
                raise Difference(f"{what}, {name}: {vllms[name]}\n{ours.get(name)}")
    raise Difference(f"{what}: {vllms}\n{ours}")
