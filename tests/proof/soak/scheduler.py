"""Plays vLLM's scheduler for a manager: the same calls in the same order, and no model."""

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request, RequestStatus

from .prompts import Prompts

MAX_RUNNING = 48
MAX_WAITING = 24
PREFILL_CHUNK = 96
MOST_OUTPUT = 4
OUTPUT_TOKEN = 7
CHANCE_OF_ABORT = 0.2
STEPS_BETWEEN_EVICTIONS = 20
STEPS_BETWEEN_RESETS = 200
SAMPLING = [SamplingParams(max_tokens=length) for length in range(1, MOST_OUTPUT + 1)]

WANTED = (
    "requests that ended by themselves",
    "requests aborted while running",
    "requests aborted while waiting",
    "preemptions for want of blocks",
    "preemptions for a reset",
    "resets granted",
    "resets refused",
    "admissions refused",
    "prefills in chunks",
    "tokens looked up",
    "tokens hit",
    "tokens hit after a preemption",
    "blocks evicted on request",
    "blocks copied",
    "events BlockStored",
    "events BlockRemoved",
    "events AllBlocksCleared",
)


class Scheduler:
    """Serves requests with one manager. ``counters`` counts its actions."""

    def __init__(
        self,
        manager: Any,
        hasher: Callable[[Any], list[bytes]],
        prompts: Prompts,
        rng: Random,
        counters: Counter[str],
    ) -> None:
        self.manager = manager
        self.hasher = hasher
        self.prompts = prompts
        self.rng = rng
        self.counters = counters
        self.waiting: deque[Any] = deque()
        self.running: list[Any] = []
        self.scheduled: list[tuple[Any, int]] = []
        self.num_steps = self.num_ended = self.num_added = 0

    def serve(self, num_requests: int, first_number: int) -> None:
        """Serve this many requests, from their arrival to their end, with prompts of these
        numbers."""
        while self.num_ended < num_requests:
            self.arrive(num_requests, first_number)
            self.step()
            self.disturb()

    def arrive(self, num_requests: int, first_number: int) -> None:
        while len(self.waiting) < MAX_WAITING and self.num_added < num_requests:
            number = first_number + self.num_added
            self.waiting.append(
                Request(
                    f"chatcmpl-{number:08}",
                    self.prompts.draw(number),
                    SAMPLING[number % MOST_OUTPUT],
                    None,
                    block_hasher=self.hasher,
                )
            )
            self.num_added += 1

    def step(self) -> None:
        self.num_steps += 1
        self.scheduled.clear()
        self.manager.new_step_starts()
        if self.go_on():
            self.admit()
        self.compute()
        self.collect()

    def go_on(self) -> bool:
        """Allocate blocks for the next tokens of the running requests. Return whether there were
        enough."""
        manager, index, enough = self.manager, 0, True
        while index < len(self.running):
            request = self.running[index]
            num_new = self.chunk(request, request.num_computed_tokens)
            blocks = manager.allocate_slots(request, num_new, num_lookahead_tokens=0)
            if blocks is None:
                self.counters["preemptions for want of blocks"] += 1
                self.preempt()
                enough = False
                continue
            blocks.get_block_ids(allow_none=True)
            self.scheduled.append((request, num_new))
            index += 1
        return enough

    def chunk(self, request: Any, start: int) -> int:
        """Return the length of the next chunk. With states, it ends where vLLM keeps the last state
        of a prompt."""
        end = min(request.num_tokens, start + PREFILL_CHUNK)
        if self.manager.kv_cache_config.has_mamba_layers:
            unit = self.manager.block_pool.hash_block_size
            boundary = (request.num_prompt_tokens - 1) // unit * unit
            end = boundary if start < boundary < end else end
        return int(end - start)

    def preempt(self) -> None:
        """Put the last running request back to the front of the waiting ones."""
        request = self.running.pop()
        self.manager.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.waiting.appendleft(request)

    def admit(self) -> None:
        while self.waiting and len(self.running) < MAX_RUNNING:
            if not self.admit_one(self.waiting[0]):
                self.counters["admissions refused"] += 1
                break

    def admit_one(self, request: Any) -> bool:
        manager = self.manager
        blocks, num_hit, _ = manager.get_computed_blocks(request)
        num_left = request.num_tokens - num_hit
        num_new = self.chunk(request, num_hit)
        # This is an option of vLLM's. Without it, running requests later need more blocks than
        # there are.
        whole_must_fit = self.num_steps % 2 == 0
        allocated = manager.allocate_slots(
            request,
            num_new,
            num_hit,
            blocks,
            full_sequence_must_fit=whole_must_fit,
            has_scheduled_reqs=bool(self.running),
        )
        if allocated is None:
            return False
        manager.get_block_ids(request.request_id)
        manager.record_prefix_cache_stats(request, num_hit)
        self.counters["prefills in chunks"] += num_new < num_left
        self.waiting.popleft()
        self.running.append(request)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_hit
        self.scheduled.append((request, num_new))
        return True

    def compute(self) -> None:
        """Give each request whose prefill is done a token, as the model would."""
        ended = False
        for request, num_new in self.scheduled:
            request.num_computed_tokens += num_new
            if request.num_computed_tokens == request.num_tokens:
                request.append_output_token_ids(OUTPUT_TOKEN)
                if request.num_output_tokens >= request.max_tokens:
                    request.status = RequestStatus.FINISHED_LENGTH_CAPPED
                    ended = True
        if ended:
            self.end_finished()

    def end_finished(self) -> None:
        finished = [request for request in self.running if request.is_finished()]
        self.running = [request for request in self.running if not request.is_finished()]
        for request in finished:
            self.end(request, "requests that ended by themselves")

    def end(self, request: Any, how: str) -> None:
        self.manager.free(request)
        self.counters[how] += 1
        self.num_ended += 1

    def collect(self) -> None:
        """Take the manager's reports after a step."""
        for event in self.manager.take_events():
            self.counters[f"events {type(event).__name__}"] += 1
        copies, copied = self.manager.take_kv_cache_block_copies()
        self.manager.block_pool.free_blocks(copied)
        self.counters["blocks copied"] += len(copies)
        self.manager.take_boundary_state_offloads()
        stats = self.manager.make_prefix_cache_stats()
        self.counters["tokens looked up"] += stats.queries
        self.counters["tokens hit"] += stats.hits
        self.counters["tokens hit after a preemption"] += stats.preempted_hits

    def disturb(self) -> None:
        if self.rng.random() < CHANCE_OF_ABORT:
            self.abort()
        if self.num_steps % STEPS_BETWEEN_EVICTIONS == 0:
            self.evict()
        if self.num_steps % STEPS_BETWEEN_RESETS == 0:
            self.reset(preempt=self.num_steps // STEPS_BETWEEN_RESETS % 2 == 0)

    def abort(self) -> None:
        index = self.rng.randrange(MAX_RUNNING + MAX_WAITING)
        if index < len(self.running):
            self.end(self.running.pop(index), "requests aborted while running")
        elif 0 <= index - MAX_RUNNING < len(self.waiting):
            request = self.waiting[index - MAX_RUNNING]
            del self.waiting[index - MAX_RUNNING]
            self.end(request, "requests aborted while waiting")

    def evict(self) -> None:
        """Evict blocks of a running request from the prefix cache, as after a failed transfer."""
        if self.running:
            request = self.rng.choice(self.running)
            block_ids = set(self.manager.get_block_ids(request.request_id)[0][:4])
            self.manager.evict_blocks(block_ids)
            self.counters["blocks evicted on request"] += len(block_ids)

    def reset(self, preempt: bool) -> None:
        while preempt and self.running:
            self.counters["preemptions for a reset"] += 1
            self.preempt()
        granted = self.manager.reset_prefix_cache()
        self.counters["resets granted" if granted else "resets refused"] += 1
