"""Plays the Mooncake trace, one request after the other, through vLLM's own manager, in the chunks
of vLLM's scheduler."""

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

from kvoxide.lab.verify.managers.driver import NewRequest
from kvoxide.lab.verify.managers.scenarios import Scenario
from kvoxide.lab.verify.managers.sides import VllmDriver
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

TOKENS_PER_HASH_ID = 512
MAX_BATCHED_TOKENS = 8192
FIRST_OUTPUT_TOKEN = 1 << 40


@dataclass(frozen=True)
class TracedRequest:
    input_length: int
    output_length: int
    hash_ids: Sequence[int]

    @property
    def prompt(self) -> list[int]:
        tokens: list[int] = []
        for hash_id in self.hash_ids:
            first = hash_id * TOKENS_PER_HASH_ID
            tokens.extend(range(first, first + TOKENS_PER_HASH_ID))
        return tokens[: self.input_length]


def trace_path() -> Path:
    """Return the trace that KVOXIDE_TRACE names, or the beginning of it that comes with the
    tests."""
    default = Path(__file__).with_name("data") / "mooncake_first_500.jsonl.gz"
    return Path(os.environ.get("KVOXIDE_TRACE", default))


def trace_lines(path: Path, num_requests: int) -> list[bytes]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        return list(islice(lines, num_requests))


def read_request(line: bytes) -> TracedRequest:
    fields = json.loads(line)
    return TracedRequest(fields["input_length"], fields["output_length"], fields["hash_ids"])


class Chunks:
    """Computes the chunks of vLLM's scheduler in models with states, with the scheduler's own
    method."""

    def __init__(self, scenario: Scenario, has_partial_hits: bool) -> None:
        states = scenario.state_groups
        self._splits = scenario.aligns_states
        self._scheduler = SimpleNamespace(
            cache_config=SimpleNamespace(block_size=states[0].block_size if states else 0),
            block_size=scenario.scheduler_block_size,
            hash_block_size=scenario.hash_block_size,
            mamba_partial_cache_hit=has_partial_hits,
            mamba_shared_prefix_checkpoint=False,
            mamba_has_prefill_checkpoint_blocks=all(
                g.num_prefill_checkpoint_blocks for g in states
            ),
            mamba_prefill_checkpoint_alignment=next(
                (group.prefill_checkpoint_alignment for group in states), None
            ),
            use_eagle_block_drop=False,
            num_hash_lookahead_tokens=0,
            max_num_scheduled_tokens=MAX_BATCHED_TOKENS,
            scheduler_config=SimpleNamespace(long_prefill_token_threshold=0),
        )

    def split(self, request: Request, num_tokens: int, num_hits: int = 0) -> int:
        if not self._splits:
            return num_tokens
        split = Scheduler._mamba_block_aligned_split
        return int(split(self._scheduler, request, num_tokens, num_hits))


class SequentialRun:
    """vLLM's manager with one request at a time: look up, prefill in chunks, decode, free."""

    def __init__(self, scenario: Scenario) -> None:
        self._driver = VllmDriver(scenario)
        self._manager: KVCacheManager = self._driver.manager
        self._output_tokens = count(FIRST_OUTPUT_TOKEN)
        self._chunks = Chunks(scenario, self._manager.coordinator.enable_partial_hash_hits)

    def hit_tokens(self, lines: Sequence[bytes]) -> Iterator[int]:
        for index, line in enumerate(lines):
            traced = read_request(line)
            request = self._submit(str(index), traced.prompt)
            yield self._prefill(request)
            self._decode(request, traced.output_length)
            self._manager.free(request)
            self._driver.forget(str(index))

    def _submit(self, request_id: str, prompt: list[int]) -> Request:
        self._driver.new_request(
            NewRequest(
                request_id=request_id,
                prompt=prompt,
                cache_salt=None,
                lora=None,
                session_id=None,
                skip_lookup=False,
                full_report=False,
            )
        )
        return self._driver.request(request_id)

    def _prefill(self, request: Request) -> int:
        self._manager.new_step_starts()
        blocks, num_hits, boundary = self._manager.get_computed_blocks(request)
        request.shared_prefix_boundary = boundary
        num_tokens = min(MAX_BATCHED_TOKENS, request.num_prompt_tokens - num_hits)
        num_tokens = self._chunks.split(request, num_tokens, num_hits)
        self._require(self._manager.allocate_slots(request, num_tokens, num_hits, blocks))
        request.num_computed_tokens = num_hits + num_tokens
        self._step_ends()
        while request.num_computed_tokens < request.num_prompt_tokens:
            missing = request.num_prompt_tokens - request.num_computed_tokens
            self._advance(request, min(MAX_BATCHED_TOKENS, missing))
        return int(num_hits)

    def _decode(self, request: Request, num_tokens: int) -> None:
        for token in islice(self._output_tokens, num_tokens):
            request.append_output_token_ids(token)
            self._advance(request, 1)

    def _advance(self, request: Request, num_tokens: int) -> None:
        self._manager.new_step_starts()
        num_tokens = self._chunks.split(request, num_tokens)
        self._require(self._manager.allocate_slots(request, num_tokens))
        request.num_computed_tokens += num_tokens
        self._step_ends()

    def _step_ends(self) -> None:
        self._manager.take_boundary_state_offloads()
        _, copied = self._manager.take_kv_cache_block_copies()
        self._manager.block_pool.free_blocks(copied)

    def _require(self, blocks: object) -> None:
        assert blocks is not None, "the pool is too small for one request of the trace"
