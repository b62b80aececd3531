"""Whose turn it is: a call of the engine, and what observers are told of it, go together."""

from threading import Lock

from kvoxide._core import BusyError


class Turn:
    """A context that one caller at a time can be in; another one gets :class:`BusyError`."""

    def __init__(self) -> None:
        """Nobody's turn yet."""
        self._taken = Lock()

    def __enter__(self) -> None:
        """Take the turn, or refuse; never wait, since the caller may be inside already."""
        if not self._taken.acquire(blocking=False):
            raise BusyError(
                "the manager is in the middle of another call; call it from one thread at a time, "
                "and not from code that its calls run or that is told of them"
            )

    def __exit__(self, *raised: object) -> None:
        """Let the next one take it."""
        self._taken.release()
