"""vLLM's free queue over the engine: free blocks in the order in which they are recycled."""

from collections.abc import Iterator, Sequence
from typing import Any

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue

from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.adapter.watched import Watched, replacing_class


class NativeQueue(FreeKVCacheBlockQueue, Watched):  # type: ignore[misc]
    """The free blocks of an engine, and after them the pinned tier. A block that is taken out has
    no owner until its ``ref_cnt`` is set or it is put back."""

    _name_in_messages = "free_block_queue"

    def __init__(self, engine: VllmManager) -> None:
        """The queue of ``engine``, whose pool is set."""
        ends = engine.queue_ends()
        assert ends is not None
        self._engine = engine
        self.fake_free_list_head, self.fake_free_list_tail = ends

    @property
    def num_free_blocks(self) -> int:
        """The number of blocks that can be allocated. A lower number withholds the other blocks
        until it is set again. Blocks that are freed add to it."""
        return self._engine.get_num_free_blocks()

    @num_free_blocks.setter
    def num_free_blocks(self, num_free_blocks: int) -> None:
        self._engine.set_num_free_blocks(num_free_blocks)

    def popleft(self) -> Any:
        return self._engine.unqueue_one()

    def popleft_n(self, n: int) -> list[Any]:
        return self._engine.unqueue_first(n) if n else []

    def remove(self, block: Any) -> None:
        self._engine.unqueue(block)

    def append(self, block: Any) -> None:
        self._engine.enqueue([block], False)

    def append_n(self, blocks: Sequence[Any]) -> None:
        self._engine.enqueue(blocks, False)

    def prepend_n(self, blocks: Sequence[Any]) -> None:
        self._engine.enqueue(blocks, True)

    def get_all_free_blocks(self) -> list[Any]:
        return self._engine.free_blocks_list()

    def iter_blocks_after(self, cursor: Any) -> Iterator[Any]:
        """Return the free blocks after ``cursor``, or all free blocks for None.

        The queue may change meanwhile. Then the block after the last one comes next, if the last
        one is still free.
        """
        if cursor is None or cursor is self.fake_free_list_head:
            return self._engine.walk_free_blocks()
        if cursor is self.fake_free_list_tail:
            return iter(())
        return self._engine.walk_free_blocks(cursor)


FreeQueue: Any = replacing_class(NativeQueue, FreeKVCacheBlockQueue)
