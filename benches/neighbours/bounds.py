"""Loose bounds on how slow the manager's other users may be with kvoxide. Code that once listed
every block of the pool was thousands of times slower."""

from typing import Final

from kvoxide.lab.bench.vllm_release import find_vllm

from benches.neighbours import block_lookups, queue, tables
from benches.neighbours.rows import Measured, print_rows

POOLS: Final = (1_000, 100_000)
PROMPTS: Final = (10_000,)
BOUNDS: Final = {
    "both ends of the free queue": 0.25,
    "64 steps from the head": 0.2,
    "first 1,024 of iter_blocks_after(None)": 0.45,
    "an offload queue's step": 0.35,
    "pool.blocks[i], each": 0.7,
    "pool.blocks[i], a few": 0.2,
    "pool.blocks[a:b] of 512": 0.45,
    "block of a hash": 0.55,
    "cached_block_hashes_by_block.get": 0.5,
    "req_to_blocks[id][i]": 0.3,
    "for block in req_to_blocks[id]": 0.6,
    "get_blocks(id).blocks": 0.6,
}
"""The least ratio of vLLM's time to kvoxide's, once a block has been read."""
FIRST: Final = 0.05
"""The least ratio when blocks are read for the first time."""


def check() -> bool:
    """Measure and print. Return whether every ratio keeps its bound."""
    vllm = find_vllm()
    if vllm.version is None:
        print(f"neighbours are not measured: no vLLM to compare with, {vllm.why_not}")
        return False
    rows = [*queue.measure(POOLS), *block_lookups.measure(POOLS), *tables.measure(PROMPTS)]
    print_rows(rows)
    slow = [row for row in rows if row.ratio < _bound(row)]
    for row in slow:
        print(f"too slow: {row.name}, {row.num_blocks:,} blocks: {row.ratio:.2f} < {_bound(row)}")
    return not slow


def _bound(row: Measured) -> float:
    return FIRST if row.name.endswith(", first") else BOUNDS[row.name]
