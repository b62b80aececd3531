"""Wraps methods of a manager's objects, and notes how they are called."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

_MOST_CALLS: Final = 5_000


class Wrappers:
    """Puts wrappers around methods and notes their calls in order."""

    def __init__(self) -> None:
        self._noted: list[object] = []

    def wrap(self, owner: Any, owner_name: str, name: str) -> None:
        """Replace a method by a function that notes the call and calls the method with the same
        arguments."""
        real: Callable[..., Any] = getattr(owner, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            args = tuple(list(a) if hasattr(a, "__next__") else a for a in args)
            given = plain(args), plain(kwargs)
            result = real(*args, **kwargs)
            if len(self._noted) < _MOST_CALLS:
                self._noted.append((owner_name, name, *given, plain(result)))
            return result

        setattr(owner, name, wrapper)

    def take(self) -> list[object]:
        """Return the calls since the last call of this method."""
        noted, self._noted = self._noted, []
        return noted


def plain(value: Any) -> Any:
    """Return a value that can be compared on two sides. Blocks become their visible attributes,
    requests their ids."""
    if value is None or isinstance(value, str | int | float | bytes | bool):
        return value
    if hasattr(value, "block_id"):
        return "block", value.block_id, value.ref_cnt, value.block_hash, value.is_null
    if hasattr(value, "request_id"):
        return "request", value.request_id
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value), key=repr)
    if isinstance(value, Sequence):
        return [plain(part) for part in islice(value, 64)]
    if isinstance(getattr(value, "blocks", None), tuple):
        return plain(value.blocks)
    return type(value).__name__
