"""Draws the events between steps: requests that share prefixes, ends, resets."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller
from typing import Any

from .scenario import Scenario
from .world import World

NUM_PROMPTS = 9
NUM_REQUESTS = 10
NUM_REMEMBERED = 20
PARAMS: tuple[Any, ...] = (
    *[None] * 10,
    {"max_load_tokens": 64},
    {"max_load_tokens": 0},
    {"max_load_tokens": True, "max_offload_tokens": -1},
    {"max_offload_tokens": 100},
    {"max_offload_tokens": 0},
    {"max_load_tokens": 100, "max_offload_tokens": 300},
    {"kv_load_tiers": []},
    {"kv_load_tiers": [{"medium": "cpu"}]},
)


class Traffic:
    def __init__(self, scenario: Scenario) -> None:
        self._rng = rng = random.Random(scenario.seed * 31 + 7)
        self._reuses_ids = scenario.reuses_ids
        self._resets = scenario.resets
        self._longest = min(700, scenario.num_blocks * 6)
        self._prompts = [
            [rng.randrange(600) for _ in range(rng.randrange(100, self._longest))]
            for _ in range(NUM_PROMPTS)
        ]
        self._num_requests = 0
        self._recent_requests: list[str] = []

    def draw(self, side: World) -> Iterator[Callable[[World], Any]]:
        """Yield the events. ``side`` is the state so far."""
        rng = self._rng
        known = sorted(side.scheduler.requests)
        if len(known) < NUM_REQUESTS and rng.random() < 0.5:
            tokens = self._tokens(side)
            for _ in range(rng.choice([1] * 9 + [3])):
                self._num_requests += 1
                yield self._add(f"r{self._num_requests}", tokens)
        if known and rng.random() < 0.04:
            name = rng.choice(known)
            yield partial(World.abort, name=name)
            if self._reuses_ids and rng.random() < 0.5:
                yield self._add(name, self._tokens(side))
        if rng.random() < self._resets:
            yield methodcaller(
                "reset", with_running=rng.random() < 0.3, with_host=rng.random() < 0.7
            )

    def _add(self, name: str, tokens: list[int]) -> Callable[[World], Any]:
        rng = self._rng
        self._recent_requests = [*self._recent_requests[-NUM_REMEMBERED:], name]
        return partial(
            World.add,
            name=name,
            tokens=tokens,
            params=rng.choice(PARAMS),
            max_tokens=rng.choice([1, 2, 3, 30]),
            prompt_logprobs=rng.choice([None] * 19 + [1]),
        )

    def _tokens(self, side: World) -> list[int]:
        rng = self._rng
        if self._recent_requests and rng.random() < 0.25:
            # This is the next turn of a chat.
            text = side.text_of(rng.choice(self._recent_requests))
            length = len(text.prompt) + rng.randrange(40)
            tokens = [text.token(place) for place in range(min(length, self._longest))]
        else:
            prompt = rng.choice(self._prompts)
            tokens = prompt[: rng.randrange(1, len(prompt))]
        return tokens + [rng.randrange(600) for _ in range(rng.choice([0, 0, 5, 40]))]
