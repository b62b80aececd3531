"""Two sides that get the same calls. A call must have the same result on both."""

import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from kvoxide.lab.verify.managers.printing import where_unequal
from kvoxide.lab.verify.suite import require_fit

S = TypeVar("S")


class Difference(Exception):
    """The two sides differ."""

    def __init__(self, step: int, what: str, reference: Any, other: Any) -> None:
        """Name the step and what differs in it, with the results of both sides."""
        super().__init__(f"step {step}: {what} differs\n  {reference}\n  {other}")
        self.step = step
        self.what = what
        self.reference = reference
        self.other = other


class Raised(Exception):
    """An exception: the name of its class, its place and its message. Two of the same class are
    equal."""

    def __init__(self, error: BaseException) -> None:
        """Describe ``error``, which was caught."""
        (*_, frame) = traceback.extract_tb(error.__traceback__)
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        super().__init__(type(error).__name__, f"{error} ({place})")
        self.place = place

    @property
    def name(self) -> str:
        """The name of the class."""
        return str(self.args[0])

    def __eq__(self, other: object) -> bool:
        """Compare the classes alone."""
        return isinstance(other, Raised) and self.name == other.name

    def __hash__(self) -> int:
        """Hash the class alone."""
        return hash(self.name)


class Twins(Generic[S]):
    """The side with vLLM's own code, and the side with kvoxide's. ``seen`` counts the events."""

    caught: tuple[type[BaseException], ...] = (BaseException,)
    """The exceptions that a call may raise, on both sides."""

    def __init__(self, reference: S, other: S) -> None:
        """Begin with two sides that had no calls."""
        self.sides = (reference, other)
        self.num_steps = 0
        self.num_calls = 0
        self.seen: Counter[str] = Counter()

    def both(self, what: str, action: Callable[[S], Any]) -> Any:
        """Call both sides. Return the common result, which is :class:`Raised` if both raised.

        Raises :class:`Difference`.
        """
        self.num_calls += 1
        reference, other = (self._outcome(action, side) for side in self.sides)
        self.require_same(what, reference, other)
        return reference

    def require_same(self, what: str, reference: Any, other: Any) -> None:
        """Raise :class:`Difference` unless both are equal."""
        if reference != other:
            raise Difference(self.num_steps, what, *where_unequal(reference, other))

    def _outcome(self, action: Callable[[S], Any], side: S) -> Any:
        try:
            return action(side)
        except (KeyboardInterrupt, SystemExit):
            raise
        except self.caught as error:
            require_fit(error)
            return Raised(error)
