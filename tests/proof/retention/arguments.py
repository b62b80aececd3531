"""Parsers of options whose values are separated by commas."""

import argparse
from collections.abc import Callable


def names_of(allowed: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a parser of some of the allowed names, separated by commas."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in allowed:
                message = f"{name!r} is none of {', '.join(allowed)}"
                raise argparse.ArgumentTypeError(message)
        return names

    return read


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def count(text: str) -> int:
    """Return a number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is too small; give 1 or more")
    return number
