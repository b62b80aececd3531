"""Replaces the contents of ``kvoxide`` if the compiled module cannot be imported.

The package itself can still be imported. vLLM's plugin needs this to say what is wrong, and a
server must start without kvoxide.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn

from kvoxide._install_hints import REINSTALL


def raiser(names: Sequence[str], error: ImportError) -> Callable[[str], NoReturn]:
    """Return a module's ``__getattr__`` that raises :class:`ImportError` for each of ``names``."""

    def __getattr__(name: str) -> NoReturn:
        if name in names:
            raise ImportError(
                f"kvoxide's compiled module is missing or broken: {error}; {REINSTALL}"
            ) from error
        raise AttributeError(f"module 'kvoxide' has no attribute {name!r}")

    return __getattr__
