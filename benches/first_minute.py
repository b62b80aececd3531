"""Measures how long single calls and steps of a fresh large pool take:

    python -m benches.first_minute [--layout NAME ...] [--blocks 9100000] [--steps 1200]

The traffic comes from a seed. It has chats that grow turn by turn, documents of up to a million
tokens, and 64 requests that decode at the same time. Some documents come again. A step has one
chunk of 8,192 tokens of prefill; 1,200 steps of 50 ms are a minute.

The manager's time in a step is measured; creating requests and hashing is not. If the machine is
shared, the system may take this process off its processor during a call. Such calls are counted
separately, and left out of the times. Page faults are counted within the calls.
"""

import argparse
import random
import resource
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from kvoxide import BlockHasher, KVCacheConfig, KVCacheManager, Request, RequestStatus
from kvoxide.lab.bench.clock import collector_paused
from kvoxide.lab.bench.layouts import LAYOUTS, MILLION, Layout

CHUNK = 8192
DECODING = 64
TURN_TOKENS = 2_000
OUTPUT_TOKENS = 200
MAX_LEN = MILLION + CHUNK
VOCABULARY = 50_000

Result = TypeVar("Result")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.first_minute", description=__doc__)
    parser.add_argument("--layout", choices=LAYOUTS, nargs="+", default=["full", "gemma", "dsv4"])
    parser.add_argument("--blocks", type=int, default=9_100_000)
    parser.add_argument("--steps", type=int, default=1200)
    arguments = parser.parse_args()
    for name in arguments.layout:
        start = time.perf_counter()
        traffic = Traffic(LAYOUTS[name], arguments.blocks)
        seconds = time.perf_counter() - start
        print(f"{name}: {arguments.blocks:,} blocks are ready after {1e3 * seconds:.0f} ms")
        with collector_paused():
            traffic.play(arguments.steps)
        traffic.times.show()


@dataclass
class Times:
    """Times of steps, and of the calls in them by kind, in powers of two of microseconds."""

    by_kind: dict[str, Counter[int]] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    num_interrupted: int = 0
    num_page_faults: int = 0

    def add(self, kind: str, seconds: float) -> None:
        """Add one call, or one step."""
        micros = max(1e6 * seconds, 1.0)
        self.by_kind.setdefault(kind, Counter())[int(micros).bit_length()] += 1
        self.worst[kind] = max(self.worst.get(kind, 0.0), micros)

    def show(self) -> None:
        """Print a line for each kind: how many took less than each number of microseconds."""
        lengths = sorted({length for counts in self.by_kind.values() for length in counts})
        print(f"{'us below':>10}" + "".join(f"{1 << n:>8,}" for n in lengths) + f"{'worst':>10}")
        for kind, counts in self.by_kind.items():
            cells = "".join(f"{counts[n]:>8,}" for n in lengths)
            print(f"{kind:>10}{cells}{self.worst[kind]:>10,.0f}")
        print(f"{self.num_interrupted} calls interrupted, {self.num_page_faults} page faults")


class Traffic:
    """One manager, and the calls that a scheduler makes on it."""

    def __init__(self, layout: Layout, num_blocks: int) -> None:
        specs = [group.spec for group in layout.groups]
        self.manager = KVCacheManager(
            KVCacheConfig(num_blocks, specs), MAX_LEN, max_in_flight_tokens=CHUNK
        )
        self.hasher = BlockHasher(self.manager.hash_block_size)
        self.random = random.Random(7)
        self.arrays = np.random.default_rng(7)
        self.chats: list[np.ndarray] = []
        self.documents: list[np.ndarray] = []
        self.decoding: deque[Request] = deque()
        self.times = Times()
        self.num_requests = 0
        self.num_steps = 0
        self.in_step = 0.0

    def play(self, num_steps: int) -> None:
        """Play this many steps, and further steps until the last request is prefilled."""
        while self.num_steps < num_steps:
            request = self.next_request()
            start = self.admit(request)
            while start < request.num_tokens:
                start = self.step(request, start)
            self.decoding.append(request)

    def next_request(self) -> Request:
        """Return a new chat or the next turn of one, or a document, which is new or comes again."""
        draw = self.random.random()
        if draw < 0.8:
            kept = self.chats if len(self.chats) > 40 else []
            before = self.random.choice(kept) if kept else self.tokens(TURN_TOKENS)
            tokens = np.concatenate([before, self.tokens(TURN_TOKENS)])
            self.chats.append(tokens)
        elif draw < 0.9 or not self.documents:
            tokens = self.tokens(self.random.choice([50_000, 200_000, MILLION - 1_000]))
            self.documents.append(tokens)
        else:
            document = self.random.choice(self.documents)
            tokens = np.concatenate([document, self.tokens(500)])
        self.num_requests += 1
        return Request(f"r{self.num_requests}", tokens, block_hasher=self.hasher)

    def tokens(self, n: int) -> np.ndarray:
        return self.arrays.integers(0, VOCABULARY, n, dtype=np.int32)

    def admit(self, request: Request) -> int:
        """Look up the request, and allocate slots for its hit and first chunk. Return the computed
        tokens."""
        blocks, hit, boundary = self.call("look-up", self.manager.get_computed_blocks, request)
        request.shared_prefix_boundary = boundary
        num_new = min(CHUNK, request.num_tokens - hit)
        self.allocate("admission", request, num_new, hit, blocks)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = hit + num_new
        self.end_step()
        return request.num_computed_tokens

    def step(self, request: Request, start: int) -> int:
        """Prefill one chunk, and give each decoding request a token. Return the computed tokens."""
        num_new = min(CHUNK, request.num_tokens - start)
        self.allocate("chunk", request, num_new)
        request.num_computed_tokens = start + num_new
        self.end_step()
        return request.num_computed_tokens

    def end_step(self) -> None:
        for request in self.decoding:
            request.append_output_token_ids(7)
            self.allocate("decode", request, 1)
            request.num_computed_tokens += 1
        done = self.decoding and self.is_done(self.decoding[0])
        if done or len(self.decoding) > DECODING:
            self.call("free", self.manager.free, self.decoding.popleft())
        self.times.add("step", self.in_step)
        self.num_steps += 1
        self.in_step = 0.0

    def is_done(self, request: Request) -> bool:
        return request.num_tokens - request.num_prompt_tokens >= OUTPUT_TOKENS

    def allocate(self, kind: str, request: Request, num_new: int, *hit: object) -> None:
        if self.call(kind, self.manager.allocate_slots, request, num_new, *hit) is None:
            raise SystemExit("the pool is too small for this traffic: give it more --blocks")

    def call(self, kind: str, method: Callable[..., Result], *arguments: object) -> Result:
        """Make a call, add its time, and return its result."""
        before = resource.getrusage(resource.RUSAGE_THREAD)
        start = time.perf_counter()
        result = method(*arguments)
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_THREAD)
        self.times.num_page_faults += after.ru_minflt - before.ru_minflt
        if after.ru_nivcsw > before.ru_nivcsw:
            self.times.num_interrupted += 1
        else:
            self.times.add(kind, seconds)
            self.in_step += seconds
        return result


if __name__ == "__main__":
    main()
