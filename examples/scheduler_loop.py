"""Schedule requests with kvoxide's manager: continuous batching in 60 lines, without vLLM.

Each step computes one token of every running request, and chunks of prompts with the rest of its
budget. If the pool has no blocks left, the newest request is preempted and starts again later.

Run it::

    pip install .
    python examples/scheduler_loop.py

It prints::

    chat-0:  0 of 111 prompt tokens from the cache, preempted 0 times
    chat-1: 96 of 122 prompt tokens from the cache, preempted 0 times
    chat-2: 96 of 133 prompt tokens from the cache, preempted 0 times
    chat-3: 96 of 144 prompt tokens from the cache, preempted 0 times
    chat-4: 96 of 155 prompt tokens from the cache, preempted 0 times
    chat-5: 96 of 166 prompt tokens from the cache, preempted 1 times
    65 steps; 30 blocks are still cached
"""

from collections import deque

import numpy as np
from kvoxide import (
    BlockHasher,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheManager,
    Request,
    RequestStatus,
)

STEP_TOKENS = 128
ANSWER_TOKENS = 40


class Scheduler:
    """Decides which requests the model computes next, and how many tokens of each."""

    def __init__(self, manager: KVCacheManager) -> None:
        self.manager = manager
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.hits: dict[str, int] = {}

    def schedule(self) -> dict[str, int]:
        """Return the tokens to compute of each request in the next step."""
        self.manager.new_step_starts()
        step: dict[str, int] = {}
        budget, num_waiting = STEP_TOKENS, len(self.waiting)
        for request in list(self.running):
            tokens = min(request.num_tokens - request.num_computed_tokens, budget)
            if tokens and self.make_room(request, tokens):
                step[request.request_id] = tokens
                budget -= tokens
        if len(self.waiting) > num_waiting:
            return step  # The pool is full: a request was preempted.
        while self.waiting and budget and (tokens := self.admit(self.waiting[0], budget)):
            request = self.waiting.popleft()
            self.running.append(request)
            step[request.request_id] = tokens
            budget -= tokens
        return step

    def make_room(self, request: Request, tokens: int) -> bool:
        """Allocate slots. Preempt the newest requests while there are too few blocks."""
        while request in self.running:
            if self.manager.allocate_slots(request, tokens) is not None:
                return True
            newest = self.running.pop()
            newest.status = RequestStatus.PREEMPTED
            newest.num_preemptions += 1
            self.manager.free(newest)
            newest.num_computed_tokens = 0
            self.waiting.appendleft(newest)
        return False

    def admit(self, request: Request, budget: int) -> int:
        """Allocate slots after the cached prefix. Return the tokens to compute, 0 if none fit."""
        cached, hit, boundary = self.manager.get_computed_blocks(request)
        request.shared_prefix_boundary = boundary
        tokens = min(request.num_tokens - hit, budget)
        if self.manager.allocate_slots(request, tokens, hit, cached) is None:
            return 0
        self.hits.setdefault(request.request_id, hit)
        request.num_computed_tokens = hit
        request.status = RequestStatus.RUNNING
        return tokens

    def update(self, step: dict[str, int]) -> None:
        """Append a token to each request whose tokens are all computed. Free finished requests."""
        for request in list(self.running):
            request.num_computed_tokens += step.get(request.request_id, 0)
            if request.num_computed_tokens == request.num_tokens:
                request.append_output_token_ids(sample(request))
            if request.num_tokens == request.num_prompt_tokens + ANSWER_TOKENS:
                self.manager.free(request)
                self.running.remove(request)


def sample(request: Request) -> int:
    """Return the next token. A server would run the model here."""
    return request.num_tokens % 1000


def main() -> None:
    groups = [KVCacheGroupSpec("full_attention", block_size=16)]
    manager = KVCacheManager(KVCacheConfig(32, groups), max_model_len=512)
    scheduler = Scheduler(manager)
    hasher = BlockHasher(manager.hash_block_size)
    system_prompt = np.arange(100, dtype=np.int32)
    for chat in range(6):
        question = np.full(11 + 11 * chat, 5000 + chat, dtype=np.int32)
        prompt = np.concatenate([system_prompt, question])
        scheduler.waiting.append(Request(f"chat-{chat}", prompt, block_hasher=hasher))
    requests = list(scheduler.waiting)

    steps = 0
    while scheduler.waiting or scheduler.running:
        scheduler.update(scheduler.schedule())
        steps += 1

    for request in requests:
        hit, length = scheduler.hits[request.request_id], request.num_prompt_tokens
        print(f"{request.request_id}: {hit:2} of {length} prompt tokens from the cache,", end=" ")
        print(f"preempted {request.num_preemptions} times")
    print(f"{steps} steps; {manager.block_pool.get_num_cached_blocks()} blocks are still cached")


if __name__ == "__main__":
    main()
