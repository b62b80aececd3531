"""Sends the same requests, ends, resets and steps to both sides, and compares them."""

from collections import Counter
from typing import Any

from kvoxide.lab.verify.schedulers.twins import Difference, Raised, Twins
from kvoxide.vllm.offload import native_class

from ..sameness.host.sides import state_of_kvoxides, state_of_vllms
from .memory import Prefixes, WrongBytesError
from .observed import plain_state
from .scenario import Scenario
from .traffic import Traffic
from .world import World

STEPS_PER_TIER_CHECK = 25


class Comparison(Twins[World]):
    """Two sides with the same traffic."""

    caught = (AssertionError, AttributeError, KeyError, ValueError)

    def __init__(self, scenario: Scenario) -> None:
        prefixes = Prefixes()
        super().__init__(*(World(scenario, prefixes, is_ours) for is_ours in (False, True)))
        self._scenario = scenario
        self._traffic = Traffic(scenario)

    def run(self, num_steps: int) -> Counter[str]:
        """Make up to ``num_steps``. Return the events, and what the workers checked."""
        while self.num_steps < num_steps and self.step():
            pass
        vllms = self.sides[0]
        self.seen["checked blocks"] = sum(rank.memory.num_checked for rank in vllms.ranks)
        self.seen.update(vllms.counts)
        return self.seen

    def step(self) -> bool:
        """Let something happen, then make a step on each side. Return whether they can continue:
        vLLM's own connector may raise."""
        for happens in self._traffic.draw(self.sides[0]):
            self.both("what happens", happens)
        self.num_steps += 1
        report = self.both("step", World.step)
        if isinstance(report, Raised):
            self._note_end(report)
            return False
        self.seen.update(report.counts())
        for vllms, ours in zip(*(side.connectors for side in self.sides), strict=True):
            states = (plain_state(each, self._scenario.num_blocks) for each in (vllms, ours))
            self.require_same("state", *states)
            if self.num_steps % STEPS_PER_TIER_CHECK == 0:
                self.require_same("tier", _tier(vllms.manager), _tier(ours.manager))
        return True

    def _note_end(self, raised: Raised) -> None:
        if raised.name == WrongBytesError.__name__ and not self._scenario.may_load_wrong_bytes:
            raise Difference(self.num_steps, "what is loaded", *raised.args)
        self.seen[f"run ended by {raised.name}, {raised.place}"] += 1


def _tier(manager: Any) -> Any:
    is_ours = isinstance(manager, native_class())
    return state_of_kvoxides(manager.tier) if is_ours else state_of_vllms(manager)
