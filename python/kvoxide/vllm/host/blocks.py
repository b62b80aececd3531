"""Blocks of a request, and those that were allocated in a step."""

from collections.abc import Iterable, Iterator
from itertools import compress, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvoxide._core_vllm import VllmBlockIds, VllmBlocks


class AllocatedBlocks:
    """The ids of blocks, which may be many. It iterates over those that jobs watch alone, for which
    vLLM looks through all."""

    def __init__(self, block_ids: Iterable[int]) -> None:
        """Take the first ids."""
        self.ids = VllmBlockIds()
        self._watched: list[int] = []
        self.update(block_ids)

    def note(self, block_ids: list[int]) -> None:
        """Add ids; the null block is none of them."""
        self.ids.update(block_ids)

    def note_table(self, blocks: Any) -> None:
        """Add the ids of all groups of a request."""
        if type(blocks) is VllmBlocks:
            self.ids.update_from(blocks)
            return
        for block_ids in blocks.get_block_ids():
            self.note(block_ids)

    def update(self, block_ids: Iterable[int]) -> None:
        """Add ids."""
        self.note(list(block_ids))

    def watch(self, block_ids: dict[int, set[int]]) -> None:
        """Find those among ``block_ids``."""
        self._watched = self.ids.among(block_ids)

    def __contains__(self, block_id: int) -> bool:
        """Whether a block was allocated."""
        return block_id in self.ids

    def __len__(self) -> int:
        """How many blocks were allocated."""
        return len(self.ids)

    def __iter__(self) -> Iterator[int]:
        """Iterate over those that jobs watch."""
        return iter(self._watched)


class GroupTable:
    """The blocks of a request in a group, of kvoxide's manager or of vLLM's."""

    def __init__(self, blocks: Any, group: int) -> None:
        """Take vLLM's blocks of all groups."""
        self._blocks, self._group = blocks, group
        self._is_native = type(blocks) is VllmBlocks

    def ids(self, start: int, end: int) -> NDArray[np.int32]:
        """The ids from ``start`` to before ``end``, where there are so many."""
        if self._is_native:
            found: NDArray[np.int32] = self._blocks.block_ids_of(self._group, start, end)
            return found
        blocks = self._blocks.blocks[self._group][start:end]
        return np.array([block.block_id for block in blocks], dtype=np.int32)

    def first_to_load(self, start: int, end: int, is_sync: bool) -> int:
        """The first block from ``start`` on that is there and is to be filled; else ``end``. Blocks
        of a load within the step have their hashes already."""
        if self._is_native:
            first: int = self._blocks.first_unhashed(self._group, start, end, is_sync)
            return first
        blocks = islice(self._blocks.blocks[self._group], start, end)
        is_it = (not block.is_null and (is_sync or block.block_hash is None) for block in blocks)
        return next(compress(range(start, end), is_it), end)
