"""A connector that reads the free queue: its ends, steps from its head, and the walk of a lazy
offload queue over the blocks that are allocated next."""

from collections.abc import Iterator
from typing import Any, Final

from benches.neighbours.pairs import POOLS, Act, Pair
from benches.neighbours.rows import Measured

STEPS: Final = 64
LISTED: Final = 1_024
PENDING: Final = 512
"""How many blocks at risk an offload queue ranks at each step, and how many hashes it compares."""
MANY: Final = 100


def measure(pools: tuple[int, ...] = POOLS) -> Iterator[Measured]:
    """Yield microseconds per end, per 64 steps, per listing and per step of an offload queue."""
    for num_blocks in pools:
        pair = Pair.of_pool(num_blocks)
        yield pair.measured("both ends of the free queue", _ends, per=MANY)
        yield from pair.both("64 steps from the head", _steps, per=1)
        yield from pair.both("first 1,024 of iter_blocks_after(None)", _listing, per=1)
        yield from pair.both("an offload queue's step", _offload_step, per=1)


def _ends(side: Any) -> Act:
    queue = side.manager.block_pool.free_block_queue

    def read(side: Any) -> None:
        del side
        for _ in range(MANY):
            _ = queue.fake_free_list_head.next_free_block
            _ = queue.fake_free_list_tail.prev_free_block

    return read


def _steps(side: Any) -> Act:
    queue = side.manager.block_pool.free_block_queue

    def walk(side: Any) -> None:
        del side
        block = queue.fake_free_list_head.next_free_block
        for _ in range(STEPS):
            block = block.next_free_block

    return walk


def _listing(side: Any) -> Act:
    queue = side.manager.block_pool.free_block_queue

    def walk(side: Any) -> int:
        del side
        num_seen = 0
        for _ in queue.iter_blocks_after(None):
            num_seen += 1
            if num_seen == LISTED:
                break
        return num_seen

    return walk


def _offload_step(side: Any) -> Act:
    pool = side.manager.block_pool
    blocks = side.manager.get_block_ids("held")[0][:PENDING]
    kept = {block_id: pool.blocks[block_id].block_hash for block_id in blocks}

    def step(side: Any) -> tuple[dict[int, int], bool]:
        del side
        ranks: dict[int, int] = {}
        block = pool.free_block_queue.fake_free_list_head.next_free_block
        while block.next_free_block is not None and len(ranks) < STEPS:
            ranks[block.block_id] = len(ranks)
            block = block.next_free_block
        intact = all(pool.blocks[i].block_hash == block_hash for i, block_hash in kept.items())
        return ranks, intact

    return step
