"""vLLM's free queue over the engine: free blocks in the order in which they are recycled."""

from collections.abc import Iterator
from typing import Any

from kvoxide._core_vllm import VllmManager


class FreeQueue:
    """The free blocks of an engine, the pinned tier behind them."""

    def __init__(self, engine: VllmManager) -> None:
        """The queue of ``engine``."""
        self._engine = engine
        self.fake_free_list_head = Sentinel(self, 0)
        self.fake_free_list_tail = Sentinel(self, -1)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be had. Set to fewer, the others are withheld until it is set again;
        blocks that are freed add to it."""
        return self._engine.num_free_blocks()

    @num_free_blocks.setter
    def num_free_blocks(self, num_free_blocks: int) -> None:
        self._engine.set_num_free_blocks(num_free_blocks)

    def get_all_free_blocks(self) -> list[Any]:
        return [self._engine.block(block_id) for block_id in self._engine.free_block_ids()]

    def iter_blocks_after(self, cursor: Any) -> Iterator[Any]:
        """The free blocks behind ``cursor``, or all of them for None. The queue may change while
        it is walked, as in vLLM."""
        block = (
            self.fake_free_list_head.next_free_block if cursor is None else cursor.next_free_block
        )
        while block is not None and block is not self.fake_free_list_tail:
            yield block
            block = block.next_free_block


class Sentinel:
    """An end of the queue: knows the block next to it."""

    block_id = -1
    ref_cnt = 0
    is_null = False
    block_hash = None

    def __init__(self, queue: FreeQueue, end: int) -> None:
        """The front (``end`` 0) or the back (-1) of ``queue``."""
        self._queue = queue
        self._end = end

    @property
    def next_free_block(self) -> Any:
        return self._neighbour(0, self._queue.fake_free_list_tail)

    @property
    def prev_free_block(self) -> Any:
        return self._neighbour(-1, self._queue.fake_free_list_head)

    def _neighbour(self, end: int, other: "Sentinel") -> Any:
        if end != self._end:
            return None
        blocks = self._queue.get_all_free_blocks()
        return blocks[end] if blocks else other
