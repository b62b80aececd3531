"""The block tables of one group, as vLLM's manager of that group has them, read from the engine."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvoxide._core_vllm import VllmManager


class RequestTables(Mapping[str, list[Any]]):
    """Request id -> its blocks in one group; a request that holds nothing has an empty table."""

    def __init__(self, engine: VllmManager, group_id: int) -> None:
        """The tables of one group of ``engine``."""
        self._engine = engine
        self._group_id = group_id

    def __getitem__(self, request_id: str) -> list[Any]:
        return list(self._engine.get_blocks(request_id).blocks[self._group_id])

    def get(self, request_id: str, default: Any = None) -> Any:
        """The table, or ``default`` for a request that holds nothing."""
        if request_id not in self:
            return default
        return self[request_id]

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._engine.request_ids()

    def __iter__(self) -> Iterator[str]:
        return iter(self._engine.request_ids())

    def __len__(self) -> int:
        return len(self._engine.request_ids())


class CachedCounts(Mapping[str, int]):
    """Request id -> leading blocks of one group that are cached or passed over for good."""

    def __init__(self, engine: VllmManager, group_id: int) -> None:
        """The counts of one group of ``engine``."""
        self._engine = engine
        self._group_id = group_id

    def __getitem__(self, request_id: str) -> int:
        return self._engine.num_cached_blocks(self._group_id)[request_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._engine.num_cached_blocks(self._group_id))

    def __len__(self) -> int:
        return len(self._engine.num_cached_blocks(self._group_id))
