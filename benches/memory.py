"""Measures what the calls of ``kvoxide bench`` cost by themselves, and what waiting for memory
adds:

    python -m benches.memory [--layout NAME ...] [--tokens 1000000]

Each row is measured without vLLM, once with nothing between its calls, and once with all caches of
the processor overwritten before each call. The last row is the least work of a first look-up:
Python's own copy of the block hashes that it needs, out of a list of ``bytes``.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from kvoxide.lab.bench import traffic
from kvoxide.lab.bench.clock import Samples, collector_paused, timed
from kvoxide.lab.bench.layouts import LAYOUTS, MILLION, Layout
from kvoxide.lab.bench.prompts import make_prompt
from kvoxide.lab.bench.sides import KVOXIDE, AdapterSide

CACHE_BYTES = 64 << 20
ROWS = ("chunk-cold", "chunk-evicting", "look-up", "admit", "free")
HASHES = "hashes alone"
HASH_ROUNDS = 8

Between = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.memory", description=__doc__)
    parser.add_argument("--layout", choices=LAYOUTS, nargs="+", default=list(LAYOUTS))
    parser.add_argument("--tokens", type=int, default=MILLION, help="length of the prompts")
    arguments = parser.parse_args()
    effort = traffic.Effort(tokens=arguments.tokens)
    swept = np.ones(CACHE_BYTES // 8, dtype=np.int64)
    print(f"{'us a call':24} {'caches left':>12} {'overwritten':>12}")
    for name in arguments.layout:
        left = _measure(LAYOUTS[name], effort, lambda: None)
        overwritten = _measure(LAYOUTS[name], effort, swept.__invert__)
        for row, before in left.items():
            print(f"{name:7} {row:16} {before:12.1f} {overwritten[row]:12.1f}")


def _measure(layout: Layout, effort: traffic.Effort, between: Between) -> dict[str, float]:
    sizes = (effort.num_blocks(layout), effort.max_model_len, effort.chunk)
    with collector_paused(), _done_before_each_timed_call(between):
        run = traffic.Traffic(layout, [AdapterSide(layout, *sizes)], effort)
        run.prefill()
        run.hit()
    rows = {row: run.samples.microseconds(row, KVOXIDE) or 0.0 for row in ROWS}
    return rows | {HASHES: _copy_hashes(layout, effort.tokens, between)}


@contextmanager
def _done_before_each_timed_call(between: Between) -> Iterator[None]:
    def after_it(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[int, Any]:
        between()
        return timed(call, *args, **kwargs)

    with patch.object(traffic, "timed", after_it):
        yield


def _copy_hashes(layout: Layout, tokens: int, between: Between) -> float:
    prompt = make_prompt("hashes", tokens, layout.hash_block_size)
    hashes = prompt.hashes_between(0, prompt.num_hashes(tokens))
    samples = Samples()
    for _ in range(HASH_ROUNDS):
        between()
        nanoseconds, _ = timed(_copy, hashes, _hashes_per_full_block(layout))
        samples.add(HASHES, KVOXIDE, nanoseconds)
    return samples.microseconds(HASHES, KVOXIDE) or 0.0


def _copy(hashes: Sequence[bytes], step: int) -> bytes:
    return b"".join(hashes[step - 1 :: step])


def _hashes_per_full_block(layout: Layout) -> int:
    return layout.groups[0].block_size // layout.hash_block_size


if __name__ == "__main__":
    main()
