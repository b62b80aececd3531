"""Prompts in families that share a prefix. Each ends in unique tokens."""

from random import Random

VOCABULARY = 500
FIRST_ORDINARY_TOKEN = 3
FAMILIES = 64
SHORTEST_PREFIX = 8
LONGEST_PREFIX = 112
LONGEST_TAIL = 96
NUMBER_TOKENS = 3
LONGEST = LONGEST_PREFIX + NUMBER_TOKENS + LONGEST_TAIL


class Prompts:
    """Draws prompts. The same ``rng`` gives the same ones."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._families = [_tokens(rng, LONGEST_PREFIX) for _ in range(FAMILIES)]
        self._tails = [_tokens(rng, LONGEST_TAIL) for _ in range(FAMILIES)]

    def draw(self, number: int) -> list[int]:
        """Return a prompt that differs from the prompts of other numbers."""
        uniform = self._rng.random
        prefix = self._families[int(uniform() * FAMILIES)]
        shared = SHORTEST_PREFIX + int(uniform() * (LONGEST_PREFIX - SHORTEST_PREFIX + 1))
        tail = self._tails[number % FAMILIES]
        return prefix[:shared] + _digits(number) + tail[: int(uniform() * LONGEST_TAIL)]


def _tokens(rng: Random, count: int) -> list[int]:
    return rng.choices(range(FIRST_ORDINARY_TOKEN, FIRST_ORDINARY_TOKEN + VOCABULARY), k=count)


def _digits(number: int) -> list[int]:
    high, low = divmod(number, VOCABULARY)
    highest, high = divmod(high, VOCABULARY)
    return [FIRST_ORDINARY_TOKEN + digit for digit in (low, high, highest)]
