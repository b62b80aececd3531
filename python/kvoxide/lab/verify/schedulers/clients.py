"""The clients of a random server. Their prompts share prefixes, and continue earlier answers."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

from kvoxide.lab.verify.managers.prompts import PromptFamily, Segment, Segments, tokens_of
from kvoxide.lab.verify.schedulers.plan import Plan
from kvoxide.lab.verify.schedulers.worker import Worker


class Clients:
    """Draws requests from ``rng``, and tells the worker how each answer begins."""

    def __init__(self, plan: Plan, rng: random.Random, worker: Worker) -> None:
        """Begin without requests."""
        scenario = plan.scenario
        cuts = [scenario.scheduler_block_size, scenario.hash_block_size, scenario.max_model_len]
        self._plan = plan
        self._rng = rng
        self._worker = worker
        self._family = PromptFamily(rng, cuts, scenario.max_model_len - 1)
        self._prompts: list[Segments] = []

    def arrivals(self, unfinished: Mapping[str, Any]) -> Iterator[tuple[int, list[int]]]:
        """Yield the number and the prompt of each request that arrives before the next step. The
        caller adds it to ``unfinished``."""
        while len(unfinished) < self._plan.num_requests:
            if unfinished and self._rng.random() >= self._plan.request_share:
                return
            number, prompt = len(self._prompts), self._family.draw()
            self._prompts.append(prompt)
            stream, start, length = prompt[-1]
            (first_output,) = tokens_of([Segment(stream, start + length, 1)])
            self._worker.expect(name_of(number), first_output)
            yield number, tokens_of(prompt)

    def remember(self, request: Any) -> None:
        """Remember where the answer to a request ended, because later prompts may continue
        there."""
        prompt = self._prompts[int(request.request_id[1:])]
        stream, start, length = prompt[-1]
        longest = self._plan.scenario.max_model_len - 1 - request.num_prompt_tokens
        length += min(request.num_output_tokens, max(longest, 0))
        self._family.remember((*prompt[:-1], Segment(stream, start, length)))


def name_of(number: int) -> str:
    """Return the id of the request with this number."""
    return f"r{number}"
