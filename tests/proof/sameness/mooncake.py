"""The Mooncake trace, one request after the other through vLLM's own manager."""

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request

from .driver import NewRequest
from .scenarios import Scenario
from .sides import VllmDriver

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
    """The trace that KVOXIDE_TRACE names, or the beginning of it that comes with the tests."""
    default = Path(__file__).with_name("data") / "mooncake_first_500.jsonl.gz"
    return Path(os.environ.get("KVOXIDE_TRACE", default))


def trace_lines(path: Path, num_requests: int) -> list[bytes]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        return list(islice(lines, num_requests))


def read_request(line: bytes) -> TracedRequest:
    fields = json.loads(line)
    return TracedRequest(fields["input_length"], fields["output_length"], fields["hash_ids"])


class SequentialRun:
    """vLLM's manager with one request at a time: look up, prefill in chunks, decode, free."""

    def __init__(self, scenario: Scenario) -> None:
        self._driver = VllmDriver(scenario)
        self._manager: KVCacheManager = self._driver.manager
        self._output_tokens = count(FIRST_OUTPUT_TOKEN)

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
        blocks, num_hits, boundary = self._manager.get_computed_blocks(request)
        request.shared_prefix_boundary = boundary
        num_tokens = min(MAX_BATCHED_TOKENS, request.num_prompt_tokens - num_hits)
        self._require(self._manager.allocate_slots(request, num_tokens, num_hits, blocks))
        request.num_computed_tokens = num_hits + num_tokens
        while request.num_computed_tokens < request.num_prompt_tokens:
            missing = request.num_prompt_tokens - request.num_computed_tokens
            self._advance(request, min(MAX_BATCHED_TOKENS, missing))
        return int(num_hits)

    def _decode(self, request: Request, num_tokens: int) -> None:
        for token in islice(self._output_tokens, num_tokens):
            request.append_output_token_ids(token)
            self._advance(request, 1)

    def _advance(self, request: Request, num_tokens: int) -> None:
        self._require(self._manager.allocate_slots(request, num_tokens))
        request.num_computed_tokens += num_tokens

    def _require(self, blocks: object) -> None:
        assert blocks is not None, "the pool is too small for one request of the trace"
