"""The attributes in which vLLM's manager of one group keeps its requests. Writing to them writes to
the engine."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex, TypeVar

from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.adapter.repeated_blocks import RepeatedBlocks

T = TypeVar("T")


class Row(list[Any]):
    """The blocks of one request in one group. The engine keeps this list equal to its own until the
    request is freed. A change is made in the engine first."""

    __slots__ = ("_request_id", "_tables")

    def __init__(self, tables: "RequestTables", request_id: str) -> None:
        """The row of a request in ``tables``, empty so far."""
        super().__init__()
        self._tables = tables
        self._request_id = request_id

    def _write(self, change: Callable[[list[Any]], T]) -> T:
        """Make a change to the blocks, as a list; an error of the engine leaves them unchanged.
        Raises :class:`ValueError` if the table would be broken."""
        if not isinstance(self._tables, RequestTables):
            # vLLM's own group has the tables by now, where this row is not yet.
            self.__class__ = _ReleasedRow
            self._tables.setdefault(self._request_id, self)
            return change(self)
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

    __slots__ = ("_engine", "_group_id", "_repeated_blocks")

    def __init__(self, engine: VllmManager, group_id: int, repeated_blocks: RepeatedBlocks) -> None:
        """The tables of one group of ``engine``."""
        super().__init__()
        self._engine = engine
        self._group_id = group_id
        self._repeated_blocks = repeated_blocks
        repeated_blocks.tables.append(self)

    def __missing__(self, request_id: str) -> Row:
        row = Row(self, request_id)
        self._engine.sync_table(request_id, self._group_id, row, self)
        return row

    def has_row(self, row: Row) -> bool:
        """Return whether a row is the row of its request, or may become it. It may become it if the
        request has no blocks yet."""
        mine = super().get(row._request_id)
        return mine is row or (mine is None and row._request_id not in self)

    def write(self, row: Row, blocks: list[Any]) -> None:
        """Replace the blocks of a row in the engine, to which its request may be new."""
        self._engine.write_row(row._request_id, self._group_id, blocks)
        if super().get(row._request_id) is not row:
            self._engine.sync_table(row._request_id, self._group_id, row, self)
        self._repeated_blocks.note(row._request_id, blocks)

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

    def copy(self) -> dict[str, Row]:
        return dict(self.items())

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __ior__(self, other: Any) -> "RequestTables":  # type: ignore[override]
        self.update(other)
        return self

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.copy(),)

    def __eq__(self, other: object) -> bool:
        return self.copy() == other

    __hash__ = None

    def __repr__(self) -> str:
        return repr(self.copy())


class KeptDict(dict[Any, Any]):
    """A dictionary that the engine keeps up to date."""

    __slots__ = ("_engine", "_group_id", "_let_vllm_continue")

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class _WrittenDict(KeptDict):
    """A dictionary of requests that other code writes to through :meth:`_write`."""

    __slots__ = ()

    def _write(self, request_id: str, value: Any) -> None:
        """Set the entry of a request; None deletes it."""
        raise NotImplementedError

    def __setitem__(self, request_id: str, value: Any) -> None:
        self._write(request_id, value)

    def __delitem__(self, request_id: str) -> None:
        self.pop(request_id)

    def pop(self, request_id: str, *default: Any) -> Any:
        if request_id not in self:
            return super().pop(request_id, *default)
        value = self[request_id]
        self._write(request_id, None)
        return value

    def popitem(self) -> tuple[str, Any]:
        request_id = next(reversed(self), None)
        return super().popitem() if request_id is None else (request_id, self.pop(request_id))

    def clear(self) -> None:
        for request_id in list(self):
            self._write(request_id, None)

    def setdefault(self, request_id: str, default: Any = None) -> Any:
        if request_id not in self:
            self._write(request_id, default)
        return self[request_id]

    def update(self, *others: Any, **more: Any) -> None:
        for request_id, value in dict(*others, **more).items():
            self._write(request_id, value)

    def __ior__(self, other: Any) -> "_WrittenDict":  # type: ignore[misc]
        self.update(other)
        return self


class CachedCounts(_WrittenDict):
    """Request id -> its leading blocks in one group that count as cached, where that is known."""

    __slots__ = ()

    def __init__(self, engine: VllmManager, group_id: int) -> None:
        """The counts of one group of ``engine``."""
        super().__init__()
        self._engine = engine
        self._group_id = group_id
        engine.sync_num_cached(group_id, self)

    def _write(self, request_id: str, value: Any) -> None:
        self._engine.write_num_cached(request_id, self._group_id, value)


class Checkpoints(KeptDict):
    """Request id -> tokens and position of the state inside its running chunk in one group.

    vLLM's own manager continues when other code writes to it.
    """

    __slots__ = ()

    def __init__(
        self, engine: VllmManager, group_id: int, let_vllm_continue: Callable[[str], None]
    ) -> None:
        """The states of one group of ``engine``."""
        super().__init__()
        self._let_vllm_continue = let_vllm_continue
        engine.sync_checkpoints(group_id, self)


def _written_in_vllm(name: str) -> Callable[..., Any]:
    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._let_vllm_continue("_checkpoints is written")
        return getattr(dict, name)(self, *args, **kwargs)

    return write


for _name in (
    "__delitem__",
    "__ior__",
    "__setitem__",
    "clear",
    "pop",
    "popitem",
    "setdefault",
    "update",
):
    setattr(Checkpoints, _name, _written_in_vllm(_name))


class _ReleasedDict(dict[Any, Any]):
    """A dictionary that the engine kept up to date, and that vLLM's own objects write to."""

    __slots__ = ("_engine", "_group_id", "_let_vllm_continue")

    __reduce__ = KeptDict.__reduce__


class _ReleasedTables(dict[str, Any]):
    """Tables that vLLM's own group writes to."""

    __slots__ = ("_engine", "_group_id", "_repeated_blocks")

    __reduce__ = KeptDict.__reduce__

    def __missing__(self, request_id: str) -> Any:
        row = self[request_id] = []
        return row


class _ReleasedRow(list[Any]):
    """A row that vLLM's own group writes to."""

    __slots__ = ("_request_id", "_tables")

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def release_dict(kept: Any, entries: dict[Any, Any]) -> dict[Any, Any]:
    """A dictionary with these entries for vLLM's own objects; ``kept``, if other code has it."""
    if kept is None:
        return entries
    kept.__class__ = _ReleasedDict
    kept.clear()
    kept.update(entries)
    return kept  # type: ignore[no-any-return]


def release_tables(kept: Any, rows: dict[str, list[Any]]) -> Any:
    """The tables with these rows for vLLM's own group: ``kept``, with the rows that it showed."""
    for row in dict.values(kept):
        row.__class__ = _ReleasedRow
    kept.__class__ = _ReleasedTables
    for request_id, row in rows.items():
        kept.setdefault(request_id, row)
    return kept
