"""A suite of a verification compares one part of kvoxide with vLLM's, in units. A seed identifies a
unit."""

import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol

_FOLDER: Final = str(Path(__file__).parent)


class NotVerifiedError(Exception):
    """The installed vLLM cannot be judged. The message says why."""


class HarnessError(NotVerifiedError):
    """The traffic does not fit the installed vLLM."""


@dataclass
class Covered:
    """Calls that were compared without a difference: their number, and the number for each kind of
    group."""

    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Covered") -> None:
        """Add the counts of ``other``."""
        self.calls += other.calls
        self.kinds += other.kinds


class FirstDifference(Exception):
    """A call that vLLM and kvoxide answer differently. ``covered`` was compared without a
    difference before. ``document`` is JSON that :meth:`Suite.play_again` plays."""

    def __init__(
        self, call: str, vllm: Any, kvoxide: Any, document: dict[str, Any], covered: Covered
    ) -> None:
        """Name the call and both results, as JSON."""
        super().__init__(call)
        self.call = call
        self.vllm = vllm
        self.kvoxide = kvoxide
        self.document = document
        self.covered = covered


class Suite(Protocol):
    """One part that is compared."""

    name: str

    def play(self, seed: int, family: str) -> Covered:
        """Compare one unit, with groups of a family of models.

        Raises :class:`FirstDifference`, or :class:`HarnessError`.
        """

    def shrunk(self, found: FirstDifference) -> FirstDifference:
        """Return the same difference after fewer calls, or the difference itself."""

    def play_again(self, document: dict[str, Any]) -> FirstDifference | None:
        """Play a recorded difference. Return it, or None if it no longer occurs.

        Raises :class:`KeyError`, :class:`TypeError` or :class:`ValueError` if the document is not a
        recorded difference.
        """


def require_fit(error: BaseException) -> None:
    """Raise :class:`HarnessError` if vLLM raised only because the traffic does not fit it: it takes
    other arguments, lacks a name, or reads attributes that its stand-ins do not have."""
    if not isinstance(error, TypeError | AttributeError | NameError):
        return
    stand_in = isinstance(getattr(error, "obj", None), SimpleNamespace)
    frames = traceback.extract_tb(error.__traceback__)
    if stand_in or (frames and frames[-1].filename.startswith(_FOLDER)):
        where = "; ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:])
        raise HarnessError(f"{type(error).__name__}: {error} ({where})") from error
