"""vLLM's manager with errors that a comparison of its scheduler has to find."""

from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager


class ShortHits(KVCacheManager):  # type: ignore[misc]
    def get_computed_blocks(self, request: Any, *rest: Any) -> Any:
        return super().get_computed_blocks(request, request.num_tokens - 2)


class CachesLate(KVCacheManager):  # type: ignore[misc]
    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        super().cache_blocks(request, num_computed_tokens - 1)


class FreesForwards(KVCacheManager):  # type: ignore[misc]
    def free(self, request: Any) -> None:
        self.block_pool.free_blocks(self.pop_blocks_for_free(request))
