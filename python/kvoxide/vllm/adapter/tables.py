"""What vLLM's manager of one group keeps of each request. What is written there is the engine's."""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, SupportsIndex, TypeVar

from kvoxide._core_vllm import VllmManager

T = TypeVar("T")


class Row(list[Any]):
    """The blocks of one request in one group: a list that the engine keeps as they are, until the
    request is freed. What is written to it is written to the engine first."""

    __slots__ = ("_request_id", "_tables")

    def __init__(self, tables: "RequestTables", request_id: str) -> None:
        """The row of a request in ``tables``, empty so far."""
        super().__init__()
        self._tables = tables
        self._request_id = request_id

    def _write(self, change: Callable[[list[Any]], T]) -> T:
        """Make a change to the blocks, as a list; an error of the engine leaves them as they are.
        Raises :class:`ValueError` where the table would be broken."""
        blocks = list(self)
        result = change(blocks)
        if self._tables.has_row(self):
            self._tables.write(self, blocks)
        else:
            super().__setitem__(slice(None), blocks)
        return result

    def __setitem__(self, index: Any, value: Any) -> None:
        self._write(lambda blocks: blocks.__setitem__(index, value))

    def __delitem__(self, index: Any) -> None:
        self._write(lambda blocks: blocks.__delitem__(index))

    def __iadd__(self, more: Iterable[Any]) -> "Row":  # type: ignore[misc]
        self.extend(more)
        return self

    def __imul__(self, times: SupportsIndex) -> "Row":
        self[:] = list(self) * times
        return self

    def append(self, block: Any) -> None:
        self._write(lambda blocks: blocks.append(block))

    def extend(self, more: Iterable[Any]) -> None:
        self._write(lambda blocks: blocks.extend(more))

    def insert(self, index: SupportsIndex, block: Any) -> None:
        self._write(lambda blocks: blocks.insert(index, block))

    def pop(self, index: SupportsIndex = -1) -> Any:
        return self._write(lambda blocks: blocks.pop(index))

    def remove(self, block: Any) -> None:
        self._write(lambda blocks: blocks.remove(block))

    def clear(self) -> None:
        self._write(lambda blocks: blocks.clear())

    def reverse(self) -> None:
        self._write(lambda blocks: blocks.reverse())

    def sort(self, **how: Any) -> None:
        self._write(lambda blocks: blocks.sort(**how))


class RequestTables(dict[str, Row]):
    """Request id -> its blocks in one group; a request that holds nothing has an empty row. It has
    the rows that code asked for, and makes the others on demand."""

    __slots__ = ("_engine", "_group_id")

    def __init__(self, engine: VllmManager, group_id: int) -> None:
        """The tables of one group of ``engine``."""
        super().__init__()
        self._engine = engine
        self._group_id = group_id

    def __missing__(self, request_id: str) -> Row:
        row = Row(self, request_id)
        self._engine.sync_table(request_id, self._group_id, row, self)
        return row

    def has_row(self, row: Row) -> bool:
        """Whether a row is that of its request, or may become it: the request holds nothing yet."""
        mine = super().get(row._request_id)
        return mine is row or (mine is None and row._request_id not in self)

    def write(self, row: Row, blocks: list[Any]) -> None:
        """Replace the blocks of a row in the engine, to which its request may be new."""
        self._engine.write_row(row._request_id, self._group_id, blocks)
        if super().get(row._request_id) is not row:
            self._engine.sync_table(row._request_id, self._group_id, row, self)

    def __setitem__(self, request_id: str, blocks: Iterable[Any]) -> None:
        self[request_id][:] = blocks

    def __delitem__(self, request_id: str) -> None:
        self.pop(request_id)

    def pop(self, request_id: str, *default: Any) -> Any:
        """The blocks of a request, which it has no more; their references stay."""
        if request_id not in self:
            if not default:
                raise KeyError(request_id)
            return default[0]
        blocks = list(self[request_id])
        self[request_id].clear()
        return blocks

    def popitem(self) -> tuple[str, Any]:
        for request_id in self:
            return request_id, self.pop(request_id)
        raise KeyError("no request holds blocks")

    def clear(self) -> None:
        for request_id in list(self):
            self.pop(request_id)

    def get(self, request_id: str, default: Any = None) -> Any:
        """The row, or ``default`` for a request that holds nothing."""
        return self[request_id] if request_id in self else default  # noqa: SIM401

    def setdefault(self, request_id: str, default: Any = None) -> Any:
        if request_id not in self and default:
            self[request_id] = default
        return self[request_id]

    def update(self, *others: Any, **more: Any) -> None:
        for request_id, blocks in dict(*others, **more).items():
            self[request_id] = blocks

    def __contains__(self, request_id: object) -> bool:
        if not isinstance(request_id, str):
            return False
        return bool(self._engine.table_len(request_id, self._group_id))

    def __iter__(self) -> Iterator[str]:
        return (r for r in self._engine.request_ids() if r in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def keys(self) -> Any:
        return list(self)

    def values(self) -> Any:
        return [self[request_id] for request_id in self]

    def items(self) -> Any:
        return [(request_id, self[request_id]) for request_id in self]

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == other

    __hash__ = None

    def __repr__(self) -> str:
        return repr(dict(self.items()))


class CachedCounts(MutableMapping[str, int]):
    """Request id -> its leading blocks in one group that count as cached, where that is known."""

    def __init__(self, engine: VllmManager, group_id: int) -> None:
        """The counts of one group of ``engine``."""
        self._engine = engine
        self._group_id = group_id

    def __getitem__(self, request_id: str) -> int:
        num_cached = self._engine.num_cached_of(request_id, self._group_id)
        if num_cached is None:
            raise KeyError(request_id)
        return num_cached

    def __setitem__(self, request_id: str, num_cached: int) -> None:
        self._engine.write_num_cached(request_id, self._group_id, num_cached)

    def __delitem__(self, request_id: str) -> None:
        if request_id not in self:
            raise KeyError(request_id)
        self._engine.write_num_cached(request_id, self._group_id, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._engine.num_cached_blocks(self._group_id))

    def __len__(self) -> int:
        return len(self._engine.num_cached_blocks(self._group_id))

    def __repr__(self) -> str:
        return repr(dict(self))


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
