"""Requests with shared prefixes, drawn from a seed: families, conversations, aborts, resets."""

import random
from dataclasses import dataclass

from .models import FIRST_ORDINARY_TOKEN, VOCABULARY

NUM_FAMILIES = 8
MAX_TURNS = 4
CONTINUE = 0.4
SALTED = 0.1
LONGEST_SHARED_PREFIX = 170
LONGEST_MESSAGE = 70
LONGEST_OUTPUT = 20


def longest_request(scale: int) -> int:
    return scale * LONGEST_SHARED_PREFIX + MAX_TURNS * (scale * LONGEST_MESSAGE + LONGEST_OUTPUT)


@dataclass(frozen=True)
class Workload:
    """A workload. ``num_aborts`` requests are aborted while they run.

    Every ``reset_every`` steps the prefix cache is reset, every second time with the running
    requests preempted for it. Prompts are ``scale`` times as long as with 1.
    """

    seed: int
    num_requests: int = 200
    arrivals_per_step: int = 2
    num_aborts: int = 10
    reset_every: int | None = None
    scale: int = 1


@dataclass(frozen=True)
class PlannedRequest:
    """A planned request. ``follows`` is the turn before: its prompt and output come before
    ``tokens``.

    ``step`` is the earliest step of its arrival. ``abort_after`` counts output tokens.
    """

    name: str
    step: int
    tokens: list[int]
    follows: str | None
    turn: int
    max_tokens: int
    priority: int
    cache_salt: str | None
    abort_after: int | None


def plan(workload: Workload) -> list[PlannedRequest]:
    """Return the requests of ``workload`` in order of arrival."""
    rng = random.Random(workload.seed)
    longest_prefix = workload.scale * LONGEST_SHARED_PREFIX
    longest_message = workload.scale * LONGEST_MESSAGE
    prefixes = [random_tokens(rng, longest_prefix) for _ in range(NUM_FAMILIES)]
    aborted = set(rng.sample(range(workload.num_requests), workload.num_aborts))
    newest: dict[int, PlannedRequest] = {}
    planned = []
    for index in range(workload.num_requests):
        family = rng.randrange(NUM_FAMILIES)
        before = newest.get(family)
        if before is not None and (before.turn == MAX_TURNS or rng.random() > CONTINUE):
            before = None
        message = random_tokens(rng, rng.randint(1, longest_message))
        shared = prefixes[family][: rng.randint(0, longest_prefix)]
        max_tokens = rng.randint(1, LONGEST_OUTPUT)
        salt = "salt" if rng.random() < SALTED else None
        newest[family] = PlannedRequest(
            name=f"request-{index}",
            step=index // workload.arrivals_per_step,
            tokens=message if before else shared + message,
            follows=before.name if before else None,
            turn=before.turn + 1 if before else 1,
            max_tokens=max_tokens,
            priority=rng.randint(0, 3),
            cache_salt=before.cache_salt if before else salt,
            abort_after=max_tokens // 2 if index in aborted else None,
        )
        planned.append(newest[family])
    return planned


def random_tokens(rng: random.Random, num: int) -> list[int]:
    return [rng.randrange(FIRST_ORDINARY_TOKEN, VOCABULARY) for _ in range(num)]
