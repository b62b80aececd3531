"""Block tables that other code wrote, and that have a block more than once."""

from collections.abc import Callable
from typing import Any
from weakref import WeakMethod

from kvoxide.vllm.adapter.watched import let_vllm_continue


class RepeatedBlocks:
    """Notes the requests whose tables have a block more than once.

    The engine holds such a table, but takes no step with it.
    """

    def __init__(self) -> None:
        """Start without tables."""
        self.tables: list[Any] = []
        """The tables of every group."""
        self._request_ids: set[str] = set()
        self._on_first: WeakMethod[Callable[[], None]] | None = None

    def __bool__(self) -> bool:
        """Return whether there may be such a request."""
        return bool(self._request_ids)

    def call_at_first(self, method: Callable[[], None]) -> None:
        """Call a method of the manager when the first request is noted. Rows that other code keeps
        do not keep the manager."""
        self._on_first = WeakMethod(method)

    def note(self, request_id: str, blocks: list[Any]) -> None:
        """Note that a table of a request has these blocks."""
        if not _has_repeats(blocks):
            return
        is_first = not self._request_ids
        self._request_ids.add(request_id)
        on_first = self._on_first and self._on_first()
        if is_first and on_first is not None:
            on_first()

    def switch_if_repeated(self, thing: Any, name: str, request_id: str) -> None:
        """Let vLLM's own objects continue before ``thing.name()`` of a request whose tables have a
        block more than once now."""
        self._request_ids = {noted for noted in self._request_ids if self._are_repeated(noted)}
        if request_id in self._request_ids:
            let_vllm_continue(
                thing, f"{name}() is called for {request_id!r}, which has a block twice in a table"
            )

    def _are_repeated(self, request_id: str) -> bool:
        return any(_has_repeats(tables.get(request_id, ())) for tables in self.tables)


def _has_repeats(blocks: Any) -> bool:
    held = [block.block_id for block in blocks if not block.is_null]
    return len(set(held)) < len(held)
