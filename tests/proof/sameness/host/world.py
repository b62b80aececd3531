"""Both sides of a scenario, and the comparison after each call."""

from collections import Counter
from typing import Any

from .operations import Operation
from .scenario import Scenario
from .sides import Side

CHUNKS_PER_CHECK = 20


class Difference(Exception):
    def __init__(self, call: str, aspect: str, reference: Any, other: Any) -> None:
        super().__init__(f"{call}: {aspect} differs")
        self.call, self.aspect, self.reference, self.other = call, aspect, reference, other


class BothRaisedError(Exception):
    """Both sides raised the same exception. vLLM's may have done half of the work by then."""


class World:
    def __init__(
        self, scenario: Scenario, sides: tuple[Side, Side], calls_per_check: int | None = None
    ) -> None:
        self.scenario = scenario
        self.reference, self.other = sides
        self.calls: Counter[str] = Counter()
        self._calls_per_check = calls_per_check or 1 + scenario.num_chunks // CHUNKS_PER_CHECK

    @property
    def num_calls(self) -> int:
        return self.calls.total()

    def run(self, operation: Operation) -> Any:
        """Run an operation on both sides, and return the answer. Raises :class:`Difference` and
        :class:`BothRaisedError`."""
        call = type(operation).__name__
        self.calls[call] += 1
        given = operation.given()
        answers = [_outcome(operation, side, given) for side in (self.reference, self.other)]
        if answers[0] != answers[1]:
            raise Difference(call, "the answer", *answers)
        kind, answer = answers[0]
        if kind == "raised":
            raise BothRaisedError(answer)
        if self.num_calls % self._calls_per_check == 0:
            self.check_state(call)
        return answer

    def check_state(self, call: str) -> None:
        reference, other = self.reference.state(), self.other.state()
        for aspect in reference:
            if reference[aspect] != other.get(aspect):
                raise Difference(call, aspect, reference[aspect], other.get(aspect))


def _outcome(operation: Operation, side: Any, given: Any) -> tuple[str, Any]:
    try:
        return "returned", operation.run(side, given)
    except Exception as error:
        return "raised", type(error).__name__
