"""Blocks that were allocated in a step."""

from collections.abc import Iterable, Iterator

from kvoxide._core_vllm import VllmBlockIds


class AllocatedBlocks:
    """The ids of blocks, which may be many. It iterates over those that jobs watch alone, for which
    vLLM looks through all."""

    def __init__(self, block_ids: Iterable[int]) -> None:
        """Take the first ids."""
        self._ids = VllmBlockIds()
        self._watched: list[int] = []
        self.update(block_ids)

    def note(self, block_ids: list[int]) -> None:
        """Add ids; the null block is none of them."""
        self._ids.update(block_ids)

    def update(self, block_ids: Iterable[int]) -> None:
        """Add ids."""
        self.note(list(block_ids))

    def watch(self, block_ids: dict[int, set[int]]) -> None:
        """Find those among ``block_ids``."""
        self._watched = self._ids.among(block_ids)

    def forget(self, block_ids: list[int], start: int, end: int) -> int:
        """Replace those from ``start`` to before ``end`` in a list by the null block. Returns where
        the first other one is then, else ``end``."""
        return self._ids.forget(block_ids, start, end)

    def __contains__(self, block_id: int) -> bool:
        """Whether a block was allocated."""
        return block_id in self._ids

    def __len__(self) -> int:
        """How many blocks were allocated."""
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        """Iterate over those that jobs watch."""
        return iter(self._watched)
