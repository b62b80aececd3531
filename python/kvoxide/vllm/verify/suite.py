"""A suite of a verification compares one thing of kvoxide's with vLLM's, in units that a seed
names."""

import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol

_FOLDER: Final = str(Path(__file__).parent)


class NotVerifiedError(Exception):
    """Nothing can be said of the vLLM that is installed; says why."""


class HarnessError(NotVerifiedError):
    """The traffic does not fit the installed vLLM."""


@dataclass
class Covered:
    """What was compared without a difference: calls, and those of them for each kind of group."""

    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Covered") -> None:
        """Count what ``other`` counts too."""
        self.calls += other.calls
        self.kinds += other.kinds


class FirstDifference(Exception):
    """A call that vLLM and kvoxide answer differently. ``covered`` is what was the same before;
    ``document`` is JSON that :meth:`Suite.play_again` plays."""

    def __init__(
        self, call: str, vllm: Any, kvoxide: Any, document: dict[str, Any], covered: Covered
    ) -> None:
        """Name the call and both answers, as JSON."""
        super().__init__(call)
        self.call = call
        self.vllm = vllm
        self.kvoxide = kvoxide
        self.document = document
        self.covered = covered


class Suite(Protocol):
    """One thing that is compared."""

    name: str

    def play(self, seed: int, family: str) -> Covered:
        """Compare one unit, with groups of a family of models.

        Raises :class:`FirstDifference`, or :class:`HarnessError`.
        """

    def shrunk(self, found: FirstDifference) -> FirstDifference:
        """Return the same difference after fewer calls, or as it is."""

    def play_again(self, document: dict[str, Any]) -> FirstDifference | None:
        """Play what a difference wrote down; None if there is none any more.

        Raises :class:`KeyError`, :class:`TypeError` or :class:`ValueError` for what is none.
        """


def require_fit(error: BaseException) -> None:
    """Raise :class:`HarnessError` where vLLM raised only because the traffic does not fit it: it
    takes other arguments, has no such name, or reads what its stand-ins do not have."""
    if not isinstance(error, TypeError | AttributeError | NameError):
        return
    stand_in = isinstance(getattr(error, "obj", None), SimpleNamespace)
    frames = traceback.extract_tb(error.__traceback__)
    if stand_in or (frames and frames[-1].filename.startswith(_FOLDER)):
        where = "; ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:])
        raise HarnessError(f"{type(error).__name__}: {error} ({where})") from error
