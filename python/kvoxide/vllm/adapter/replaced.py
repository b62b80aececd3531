"""The engine of a manager that vLLM's own replaced."""

from types import SimpleNamespace
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager as StockManager


class ReplacedEngine:
    """Answers the engine's calls with vLLM's own methods, for methods of kvoxide's manager that
    other code took from it before vLLM's replaced it."""

    is_replaced = True

    def __init__(self, manager: Any) -> None:
        """Answer for ``manager``, which is vLLM's own by now."""
        self._manager = manager

    def __getattr__(self, name: str) -> Any:
        method = getattr(StockManager, name)
        return lambda *args: method(self._manager, *args)

    def free(self, request_id: str, request: Any = None) -> None:
        StockManager.free(self._manager, request or SimpleNamespace(request_id=request_id))

    def pop_blocks_for_free(self, request_id: str, with_null_head: bool, request: Any) -> Any:
        return StockManager.pop_blocks_for_free(self._manager, request)

    def estimate_cached_tokens(self, request_id: str) -> int:
        request = SimpleNamespace(request_id=request_id)
        return int(StockManager.estimate_cached_tokens(self._manager, request))

    def get_blocks(self, request_id: str, tables: object) -> Any:
        return StockManager.get_blocks(self._manager, request_id)

    def wrap_blocks(self, blocks: Any) -> Any:
        return StockManager.create_kv_cache_blocks(self._manager, blocks)

    def finalize_partial_tail_offloads(self, request: Any, request_id: str) -> Any:
        return StockManager.finalize_partial_tail_offloads(self._manager, request)

    def request_ids(self) -> list[str]:
        groups = self._manager.coordinator.single_type_managers
        return list(dict.fromkeys(name for group in groups for name in group.req_to_blocks))
