"""A server without vLLM and without a model, whose pool and CPU memory decide together. An element
of an array is the content of each block, so that a wrong copy is noticed."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from random import Random

import numpy as np
from kvoxide import (
    HostTier,
    HostTransfer,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheManager,
    Policy,
    Request,
    RequestStatus,
)

MAX_LEN = 1 << 10
STEP_TOKENS = 64


class ToyEngine:
    """Serves requests: a budget of tokens per step, preemption of the newest request, transfers
    that end up to ``delay`` steps late. A request generates ``answers[request_id]``."""

    def __init__(
        self,
        num_blocks: int,
        num_chunks: int,
        groups: Sequence[KVCacheGroupSpec],
        *,
        policy: Policy | None = None,
        delay: int = 0,
    ) -> None:
        config = KVCacheConfig(num_blocks, list(groups))
        self.manager = KVCacheManager(config, MAX_LEN, policy=policy)
        self.tier = HostTier(num_chunks, "adaptive")
        self.tier.decide_with(self.manager)
        self.gpu = np.zeros(num_blocks, np.int64)
        self.cpu = np.zeros(num_chunks, np.int64)
        self.answers: dict[str, list[int]] = {}
        self.waiting: deque[Request] = deque()
        self.loading: dict[str | None, Request] = {}
        self.running: list[Request] = []
        self.hits: dict[str, int] = {}
        self.num_loaded = self.num_preempted = 0
        self._open: list[tuple[int, HostTransfer]] = []
        self._delay, self._rng = delay, Random(0)

    def serve(self, requests: Iterable[tuple[Request, list[int]]], concurrency: int = 4) -> None:
        """Serve requests in order, at most ``concurrency`` at a time."""
        left = deque(requests)
        while left or self.waiting or self.loading or self.running:
            while left and len(self.waiting) + len(self.loading) + len(self.running) < concurrency:
                request, self.answers[request.request_id] = left.popleft()
                self.waiting.append(request)
            self.step()

    def step(self) -> None:
        """Schedule requests, copy blocks, and compute."""
        self.manager.new_step_starts()
        budget = STEP_TOKENS
        computed: list[tuple[Request, int]] = []
        for request in list(self.running):
            num_new = min(request.num_tokens - request.num_computed_tokens, budget)
            if num_new and self._has_room(request, num_new):
                request.status = RequestStatus.RUNNING
                computed.append((request, num_new))
                budget -= num_new
        while self.waiting and budget and (num_new := self._admit(self.waiting[0], budget)) >= 0:
            if num_new > 0:
                computed.append((self.waiting.popleft(), num_new))
                budget -= num_new
        self._copy()
        self._compute(computed)

    def _has_room(self, request: Request, num_new: int) -> bool:
        while request in self.running:
            if self.manager.allocate_slots(request, num_new) is not None:
                return True
            newest = self.running.pop()
            newest.status = RequestStatus.PREEMPTED
            newest.num_preemptions += 1
            self.manager.free(newest)
            newest.num_computed_tokens = 0
            self.num_preempted += 1
            self.waiting.appendleft(newest)
        return False

    def _admit(self, request: Request, budget: int) -> int:
        """Admit a request, or start its load. Return the tokens to compute, -1 if it waits."""
        hit = self.manager.get_computed_blocks(request)
        request.shared_prefix_boundary = hit[2]
        found = self.tier.lookup_request(request, hit[0], hit[1])
        if found is None:
            return -1
        blocks, num_hit, num_loaded = found
        num_new = 0 if num_loaded else min(request.num_tokens - num_hit, budget)
        new = self.manager.allocate_slots(
            request,
            num_new,
            num_hit,
            blocks,
            num_external_computed_tokens=num_loaded,
            delay_cache_blocks=num_loaded > 0,
            full_sequence_must_fit=True,
        )
        if new is None:
            return -1
        request.num_computed_tokens = num_hit + num_loaded
        self.hits.setdefault(request.request_id, num_hit + num_loaded)
        if num_loaded:
            self.tier.start_load(request)
            self.loading[request.request_id] = self.waiting.popleft()
            self.num_loaded += num_loaded
        else:
            self.running.append(request)
        return num_new

    def _copy(self) -> None:
        step = self.tier.prepare_step()
        self._end(step.waits_for)
        self._open = [(when, open_) for when, open_ in self._open if open_ not in step.waits_for]
        self._end([step.before])
        new = [step.during, *step.loads]
        self._open += [(self._rng.randint(0, self._delay), transfer) for transfer in new]
        self._end([transfer for when, transfer in self._open if when == 0])
        self._open = [(when - 1, transfer) for when, transfer in self._open if when > 0]
        copies, ends = self.manager.take_kv_cache_block_copies()
        for copy in copies:
            self.gpu[copy.dst_block_id] = self.gpu[copy.src_block_id]
        self.manager.block_pool.free_blocks(ends)

    def _end(self, transfers: Iterable[HostTransfer]) -> None:
        for transfer in transfers:
            if transfer.request_id is None:
                self.cpu[transfer.chunk_ids] = self.gpu[transfer.block_ids]
            else:
                self.gpu[transfer.block_ids] = self.cpu[transfer.chunk_ids]
            self.tier.complete(transfer)
            if transfer.request_id is not None:
                self._resume(self.loading.pop(transfer.request_id))

    def _resume(self, request: Request) -> None:
        self.manager.cache_blocks(request, request.num_computed_tokens)
        # The last token of a prompt is always computed.
        request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        self.running.append(request)

    def _compute(self, computed: list[tuple[Request, int]]) -> None:
        computed = [(request, num_new) for request, num_new in computed if request in self.running]
        for request, num_new in computed:
            start = request.num_computed_tokens
            request.num_computed_tokens += num_new
            for block, content in self._contents(request, start):
                self.gpu[block] = content
        for request, _ in computed:
            self._check(request)
            answer = self.answers[request.request_id]
            if request.num_computed_tokens < request.num_tokens:
                continue
            if answer:
                request.append_output_token_ids(answer.pop(0))
            else:
                self.manager.free(request)
                self.running.remove(request)

    def _check(self, request: Request) -> None:
        """Check that the blocks of a hit have the content that the request wants."""
        for block, content in self._contents(request):
            assert self.gpu[block] == content, request

    def _contents(self, request: Request, start: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the full blocks of a request that end after token ``start`` and are computed, and
        what they have to hold."""
        tables = self.manager.get_block_ids(request.request_id)
        hashes = request.block_hashes
        for group, table in enumerate(tables):
            size = self.manager.kv_cache_config.kv_cache_groups[group].block_size
            per_block = size // self.manager.hash_block_size
            for at in range(start // size, min(len(table), request.num_computed_tokens // size)):
                if table[at]:
                    content = int.from_bytes(hashes[(at + 1) * per_block - 1][:7], "big")
                    yield table[at], content * 8 + group
