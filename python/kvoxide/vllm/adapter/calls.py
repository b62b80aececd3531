"""Calls of vLLM's manager and its coordinator that the engine gets unchanged, by vLLM's names."""

from collections.abc import Sequence
from typing import Any

from kvoxide._core_vllm import VllmBlock, VllmBlocks, VllmManager


class _Calls:
    __slots__ = ()

    engine: VllmManager

    def remove_skipped_blocks(
        self,
        request_id: str,
        processed_computed_tokens: int,
        num_prompt_tokens: int | None = None,
    ) -> None:
        self.engine.remove_skipped_blocks(
            request_id, max(0, processed_computed_tokens), num_prompt_tokens
        )


class CoordinatorCalls(_Calls):
    """The coordinator's, which knows requests by their id."""

    __slots__ = ()

    pops_null_heads: bool

    def free(self, request_id: str) -> None:
        self.engine.free(request_id)

    def pop_blocks_for_free(self, request_id: str) -> list[VllmBlock]:
        return self.engine.pop_blocks_for_free(request_id, self.pops_null_heads)


class ManagerCalls(_Calls):
    """The manager's, which takes the requests themselves."""

    __slots__ = ()

    coordinator: Any
    enable_caching: bool
    empty_kv_cache_blocks: VllmBlocks

    def free(self, request: Any) -> None:
        self.engine.free(request.request_id, request)

    def pop_blocks_for_free(self, request: Any) -> list[VllmBlock]:
        # vLLM's own coordinator, once it has replaced kvoxide's, has no such attribute.
        with_null_head = getattr(self.coordinator, "pops_null_heads", False)
        return self.engine.pop_blocks_for_free(request.request_id, with_null_head, request)

    def estimate_cached_tokens(self, request: Any) -> int:
        return self.engine.estimate_cached_tokens(request.request_id)

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        if self.enable_caching:
            self.coordinator.cache_blocks(request, num_computed_tokens)

    def create_kv_cache_blocks(self, blocks: Sequence[Sequence[Any]]) -> VllmBlocks:
        return self.engine.wrap_blocks(blocks) if any(blocks) else self.empty_kv_cache_blocks
