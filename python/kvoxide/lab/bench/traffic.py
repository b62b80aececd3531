"""The calls that vLLM's scheduler makes for one kind of request after another, timed.

Sides take turns after each operation, or after each block of operations. They also take turns to
begin.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kvoxide.lab.bench.clock import Samples, timed
from kvoxide.lab.bench.layouts import MILLION, Layout
from kvoxide.lab.bench.prompts import Prompt, make_prompt
from kvoxide.lab.bench.rows import SHORT_SIZES
from kvoxide.lab.bench.sides import BenchError, Side

LONGEST_CHUNK: Final = 8192
DECODING_REQUESTS: Final = 32
DECODING_CONTEXT: Final = 4096
DECODE_STEPS: Final = 16
SHORT_REQUESTS_PER_BLOCK: Final = 40
BLOCK_IDS_PER_ROUND: Final = 4
# If a call that changes nothing is too short to be timed once, it is repeated for this long.
_SHORTEST_TIMED_NS: Final = 300_000
_SPARE_BLOCKS: Final = 64


@dataclass(frozen=True)
class Effort:
    """The measured sizes, and the number of rounds. Lengths are in tokens."""

    tokens: int = MILLION
    prefill_rounds: int = 2
    hit_rounds: int = 8
    decode_rounds: int = 12
    short_rounds: int = 60

    @property
    def chunk(self) -> int:
        """Tokens of one step of a prefill. A prompt has several steps."""
        return min(LONGEST_CHUNK, self.tokens // 4)

    @property
    def decoding_context(self) -> int:
        """Prompt length of the requests that decode."""
        return min(DECODING_CONTEXT, self.tokens)

    def num_blocks(self, layout: Layout) -> int:
        """Return the size of a pool in which everything that is measured fits."""
        context = self.decoding_context + 2 * DECODE_STEPS
        decoding = DECODING_REQUESTS * layout.blocks_held(context, in_flight=1)
        return max(
            layout.blocks_per_million * self.tokens // MILLION,
            layout.blocks_held(self.tokens, in_flight=2 * self.chunk) + _SPARE_BLOCKS,
            decoding + layout.blocks_held(context, in_flight=context) + _SPARE_BLOCKS,
        )

    @property
    def max_model_len(self) -> int:
        """Length of the longest request, with some output."""
        return self.tokens + 1024


class Traffic:
    """Sends requests through all sides of one layout."""

    def __init__(self, layout: Layout, sides: Sequence[Side], effort: Effort) -> None:
        """Prepare the same traffic for every side."""
        self.layout = layout
        self.effort = effort
        self.samples = Samples()
        self._sides = list(sides)
        self._num_requests = 0

    def run(self) -> Samples:
        """Measure every row."""
        self.prefill()
        self.hit()
        self.decode()
        self.short_requests()
        return self.samples

    def prefill(self) -> None:
        """Measure a prompt in an empty pool, and one in a pool full of other prompts' blocks. The
        last prompt stays cached."""
        filling = self._sides[0].num_blocks // self.layout.blocks_cached(self.effort.tokens)
        for _ in range(self.effort.prefill_rounds):
            for side in self._sides:
                side.renew()
            gc.collect()
            self._prefill("cold", "chunk-cold")
            for index in range(filling):
                self._prefill(f"filling-{index}", None)
            self._prefill("evicting", "chunk-evicting")

    def _prefill(self, name: str, row: str | None) -> None:
        """Prefill chunk by chunk, and free. The first chunk goes through admission and is not part
        of ``row``."""
        prompt = self._prompt(name, self.effort.tokens)
        requests = self._new_requests(prompt)
        chunks = self._chunks(prompt.num_tokens)
        for side, request in self._in_turn(requests):
            _admit(side, request, chunks[0])
        for step, num_new in enumerate(chunks[1:]):
            for side, request in self._in_turn(requests, step):
                side.manager.new_step_starts()
                nanoseconds, _ = timed(_next_chunk, side, request, num_new)
                request.num_computed_tokens += num_new
                if row is not None:
                    self.samples.add(row, side.name, nanoseconds, step)
        for side, request in self._in_turn(requests):
            side.manager.free(request)

    def _chunks(self, num_tokens: int) -> list[int]:
        chunks, start = [], 0
        while start < num_tokens:
            chunks.append(self.layout.chunk(start, num_tokens, self.effort.chunk))
            start += chunks[-1]
        return chunks

    def hit(self) -> None:
        """Measure the prompt that was cached last when it comes again: look-ups, admission, block
        ids, end."""
        prompt = self._prompt("evicting", self.effort.tokens)
        for index in range(self.effort.hit_rounds):
            requests = self._in_turn(self._new_requests(prompt), index)
            for side, _ in requests:
                side.manager.new_step_starts()
            hits = [self._look_up(side, request) for side, request in requests]
            for side, request in requests:
                self._look_up_again(side, request)
            for (side, request), found in zip(requests, hits, strict=True):
                self._admit_hit(side, request, *found)
            for side, request in requests * BLOCK_IDS_PER_ROUND:
                nanoseconds, _ = timed(_whole_block_ids, side, request)
                self.samples.add("block-ids", side.name, nanoseconds)
            for side, request in requests:
                nanoseconds, _ = timed(side.manager.free, request)
                self.samples.add("free", side.name, nanoseconds)

    def _look_up(self, side: Side, request: Any) -> tuple[Any, int]:
        nanoseconds, found = timed(side.manager.get_computed_blocks, request)
        self.samples.add("look-up", side.name, nanoseconds)
        blocks, num_hit = found[:2]
        expected = (request.num_tokens - 1) // self.layout.scheduler_block_size
        if num_hit != expected * self.layout.scheduler_block_size:
            raise BenchError(f"{side.name} hits {num_hit} of {request.num_tokens} tokens")
        return blocks, num_hit

    def _look_up_again(self, side: Side, request: Any) -> None:
        once, _ = timed(side.manager.get_computed_blocks, request)
        repeats = 1 + _SHORTEST_TIMED_NS // max(once, 1000)
        nanoseconds, _ = timed(_look_up_often, side, request, repeats)
        self.samples.add("look-up-again", side.name, nanoseconds / repeats)

    def _admit_hit(self, side: Side, request: Any, blocks: Any, num_hit: int) -> None:
        num_new = request.num_tokens - num_hit
        nanoseconds, admitted = timed(
            side.manager.allocate_slots,
            request,
            num_new,
            num_hit,
            blocks,
            full_sequence_must_fit=True,
        )
        self.samples.add("admit", side.name, nanoseconds)
        if admitted is None:
            raise BenchError(f"{side.name} did not admit the request")
        side.set_running(request)
        request.num_computed_tokens = request.num_tokens

    def decode(self) -> None:
        """Measure steps in which every running request gets one token."""
        context, num_output = self.effort.decoding_context, self.effort.decode_rounds * DECODE_STEPS
        prompts = [
            self._prompt(f"decode-{index}", context - 37 * index % 256, num_output + 1)
            for index in range(DECODING_REQUESTS)
        ]
        running: dict[str, list[Any]] = {side.name: [] for side in self._sides}
        for prompt in prompts:
            for side, request in self._new_requests(prompt):
                _admit(side, request, request.num_tokens)
                # The first decode step releases the blocks of the prefill that are before the
                # window.
                self._append(side, [request], [prompt])
                _decode_step(side, [request])
                request.num_computed_tokens += 1
                running[side.name].append(request)
        for index in range(num_output):
            for side in self._order(index):
                requests = running[side.name]
                self._append(side, requests, prompts)
                nanoseconds, _ = timed(_decode_step, side, requests)
                for request in requests:
                    request.num_computed_tokens += 1
                step = index % DECODE_STEPS
                self.samples.add("decode", side.name, nanoseconds / len(requests), step)
        for side in self._sides:
            for request in running[side.name]:
                side.manager.free(request)

    def _append(self, side: Side, requests: list[Any], prompts: list[Prompt]) -> None:
        for request, prompt in zip(requests, prompts, strict=True):
            side.append_token(request, prompt)

    def short_requests(self) -> None:
        """Measure requests that end with their prefill, each with a new prompt."""
        for index in range(self.effort.short_rounds):
            for tokens in SHORT_SIZES:
                prompts = [
                    self._prompt(f"short-{tokens}-{index}-{n}", tokens)
                    for n in range(SHORT_REQUESTS_PER_BLOCK)
                ]
                for side in self._order(index):
                    requests = [side.new_request(self._new_id(), prompt) for prompt in prompts]
                    nanoseconds, _ = timed(_serve_short, side, requests)
                    row = f"short-{tokens}"
                    self.samples.add(row, side.name, nanoseconds / len(requests))

    def _prompt(self, name: str, num_tokens: int, num_output: int = 0) -> Prompt:
        return make_prompt(name, num_tokens, self.layout.hash_block_size, num_output)

    def _new_requests(self, prompt: Prompt) -> list[tuple[Side, Any]]:
        return [(side, side.new_request(self._new_id(), prompt)) for side in self._sides]

    def _new_id(self) -> str:
        self._num_requests += 1
        return f"chatcmpl-{self._num_requests:08}"

    def _order(self, index: int) -> list[Side]:
        return self._sides if index % 2 == 0 else self._sides[::-1]

    def _in_turn(self, requests: list[tuple[Side, Any]], index: int = 0) -> list[tuple[Side, Any]]:
        return requests if index % 2 == 0 else requests[::-1]


def _admit(side: Side, request: Any, num_new: int) -> None:
    blocks, num_hit = side.manager.get_computed_blocks(request)[:2]
    num_new = min(num_new, request.num_tokens - num_hit)
    admitted = side.manager.allocate_slots(
        request, num_new, num_hit, blocks, full_sequence_must_fit=True
    )
    if admitted is None:
        raise BenchError(f"{side.name} did not admit a request of {request.num_tokens} tokens")
    side.set_running(request)
    request.num_computed_tokens = num_hit + num_new


def _next_chunk(side: Side, request: Any, num_new: int) -> Any:
    blocks = side.manager.allocate_slots(request, num_new, num_lookahead_tokens=0)
    return blocks.get_block_ids(allow_none=True)


def _look_up_often(side: Side, request: Any, repeats: int) -> None:
    for _ in range(repeats):
        side.manager.get_computed_blocks(request)


def _whole_block_ids(side: Side, request: Any) -> Any:
    return side.manager.get_blocks(request.request_id).get_block_ids()


def _decode_step(side: Side, requests: list[Any]) -> None:
    manager = side.manager
    for request in requests:
        manager.allocate_slots(request, 1, num_lookahead_tokens=0).get_block_ids(allow_none=True)


def _serve_short(side: Side, requests: list[Any]) -> None:
    manager = side.manager
    for request in requests:
        blocks, num_hit = manager.get_computed_blocks(request)[:2]
        num_new = request.num_tokens - num_hit
        manager.allocate_slots(request, num_new, num_hit, blocks, full_sequence_must_fit=True)
        manager.free(request)
