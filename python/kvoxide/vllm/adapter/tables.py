"""What vLLM's manager of one group keeps of each request, read from the engine when it is asked."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

from kvoxide._core_vllm import VllmManager

T = TypeVar("T")


class BlockTable(Sequence[Any]):
    """The blocks of one request in one group, as they are now; once the request is freed, those
    that it had when the table was asked for. Equal to a list of equal blocks."""

    def __init__(self, engine: VllmManager, request_id: str, group_id: int) -> None:
        """The table of a request of ``engine`` in one of its groups."""
        self._engine = engine
        self._request_id = request_id
        self._group_id = group_id
        self._at_first = engine.get_blocks(request_id)

    def __len__(self) -> int:
        num_blocks = self._engine.table_len(self._request_id, self._group_id)
        return len(self._at_first.blocks[self._group_id]) if num_blocks is None else num_blocks

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        positions = range(len(self))[index]
        if isinstance(positions, int):
            return self._blocks(positions, positions + 1)[0]
        if not positions:
            return []
        first, end = min(positions), max(positions) + 1
        return self._blocks(first, end)[:: positions.step if len(positions) > 1 else 1]

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def __add__(self, other: Sequence[Any]) -> list[Any]:
        return self[:] + list(other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | BlockTable) and self[:] == other[:]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self[:])

    def _blocks(self, first: int, end: int) -> list[Any]:
        blocks = self._engine.table_blocks(self._request_id, self._group_id, first, end)
        return blocks or list(self._at_first.blocks[self._group_id][first:end])


class RequestTables(Mapping[str, BlockTable]):
    """Request id -> its blocks in one group; a request that holds nothing has an empty table."""

    def __init__(self, engine: VllmManager, group_id: int) -> None:
        """The tables of one group of ``engine``."""
        self._engine = engine
        self._group_id = group_id

    def __getitem__(self, request_id: str) -> BlockTable:
        return BlockTable(self._engine, request_id, self._group_id)

    def get(self, request_id: str, default: Any = None) -> Any:
        """The table, or ``default`` for a request that holds nothing."""
        return default if self._num_blocks(request_id) is None else self[request_id]

    def __contains__(self, request_id: object) -> bool:
        return isinstance(request_id, str) and self._num_blocks(request_id) is not None

    def _num_blocks(self, request_id: str) -> int | None:
        return self._engine.table_len(request_id, self._group_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._engine.request_ids())

    def __len__(self) -> int:
        return len(self._engine.request_ids())


class RequestFacts(Mapping[str, T]):
    """Request id -> what the engine knows of it in one group, where it knows anything."""

    def __init__(self, read: Callable[[int], dict[str, T]], group_id: int) -> None:
        """What ``read``, a call of the engine, answers for one group."""
        self._read = read
        self._group_id = group_id

    def __getitem__(self, request_id: str) -> T:
        return self._read(self._group_id)[request_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read(self._group_id))

    def __len__(self) -> int:
        return len(self._read(self._group_id))
