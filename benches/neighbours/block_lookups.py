"""A user that looks blocks up by id, by range and by hash, and reads their alias keys."""

from collections.abc import Iterator
from typing import Any, Final

from benches.neighbours.pairs import POOLS, Act, Pair
from benches.neighbours.rows import Measured

RANGE: Final = 512
MOST_KEYS: Final = 4_096


def measure(pools: tuple[int, ...] = POOLS) -> Iterator[Measured]:
    """Yield microseconds per block, or per range of 512 blocks."""
    for num_blocks in pools:
        pair = Pair.of_pool(num_blocks)
        yield from pair.both("pool.blocks[i], each", _by_id, per=num_blocks)
        yield from pair.both("pool.blocks[i], a few", _few_by_id, per=RANGE)
        yield from pair.both("pool.blocks[a:b] of 512", _by_range, per=1)
        yield from pair.both("block of a hash", _by_hash, per=min(MOST_KEYS, num_blocks // 8))
        yield from pair.both("cached_block_hashes_by_block.get", _further_keys, per=num_blocks)


def _by_id(side: Any) -> Act:
    pool, num_blocks = side.manager.block_pool, side.num_blocks

    def look(side: Any) -> None:
        del side
        for block_id in range(num_blocks):
            _ = pool.blocks[block_id]

    return look


def _few_by_id(side: Any) -> Act:
    pool = side.manager.block_pool
    block_ids = range(0, side.num_blocks, max(1, side.num_blocks // RANGE))[:RANGE]

    def look(side: Any) -> None:
        del side
        for block_id in block_ids:
            _ = pool.blocks[block_id]

    return look


def _by_range(side: Any) -> Act:
    pool = side.manager.block_pool

    def look(side: Any) -> None:
        del side
        for block in pool.blocks[10 : 10 + RANGE]:
            _ = block.block_id

    return look


def _by_hash(side: Any) -> Act:
    from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

    hashes = side.request.block_hashes[:MOST_KEYS]
    keys = [make_block_hash_with_group_id(block_hash, 0) for block_hash in hashes]
    pool = side.manager.block_pool

    def look(side: Any) -> None:
        del side
        for key in keys:
            _ = pool.cached_block_hash_to_block.get_one_block(key)

    return look


def _further_keys(side: Any) -> Act:
    pool, num_blocks = side.manager.block_pool, side.num_blocks

    def look(side: Any) -> None:
        del side
        for block_id in range(num_blocks):
            _ = pool.cached_block_hashes_by_block.get(block_id)

    return look
