"""Errors in the managers of attention groups, kind by kind."""

from collections.abc import Sequence
from typing import Any

from vllm.v1.core.single_type_kv_cache_manager import (
    ChunkedLocalAttentionManager,
    CircularBufferManager,
    CrossAttentionManager,
    FullAttentionManager,
    RSWAManager,
    SingleTypeKVCacheManager,
    SlidingWindowManager,
)

from ..fault import Faults, Plant

every = Faults("groups of every kind")
full = Faults("full attention")
window = Faults("sliding window")
chunked = Faults("chunked local attention")
rswa = Faults("rswa")
circular = Faults("circular buffer")
cross = Faults("cross attention")
AREAS = (every, full, window, chunked, rswa, circular, cross)


def skipping_less(plant: Plant, owner: Any) -> None:
    def get_num_skipped_tokens(original: Any, self: Any, num_computed_tokens: int) -> int:
        return max(int(original(self, num_computed_tokens)) - 1, 0)

    plant.around(owner, "get_num_skipped_tokens", get_num_skipped_tokens)


def needing_more(plant: Plant, owner: Any) -> None:
    plant.around(
        owner, "get_num_blocks_to_allocate", lambda original, *a, **k: original(*a, **k) + 1
    )


@every
def new_blocks_in_reverse(plant: Plant) -> None:
    def allocate_new_blocks(original: Any, self: Any, request_id: str, *rest: Any) -> Any:
        blocks = original(self, request_id, *rest)
        table = self.req_to_blocks[request_id]
        if len(blocks) > 1 and table[-len(blocks) :] == blocks:
            table[-len(blocks) :] = blocks[::-1]
        return blocks

    plant.around(SingleTypeKVCacheManager, "allocate_new_blocks", allocate_new_blocks)


@every
def needs_a_block_more(plant: Plant) -> None:
    needing_more(plant, SingleTypeKVCacheManager)


@every
def evictable_hits_cost_nothing(plant: Plant) -> None:
    plant.put(SingleTypeKVCacheManager, "_get_num_evictable_blocks", classmethod(lambda *_: 0))


@full
def full_attention_hits_twice(plant: Plant) -> None:
    """A hit of one block is ignored."""

    def find(original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(cls, *args, **kwargs)
        blocks, *rest = found if isinstance(found[-1], int) else (found, None)
        if len(blocks[0]) == 1:
            for group in blocks:
                group.clear()
            rest = [0 if isinstance(value, int) else value for value in rest]
        return (blocks, *rest) if isinstance(found[-1], int) else blocks

    plant.around(FullAttentionManager, "find_longest_cache_hit", find)


full.lose(FullAttentionManager, "_cache_partial_tail_block", "partial_tail_not_cached")
full.lose(FullAttentionManager, "cache_blocks", "full_attention_not_cached")
window.lose(SlidingWindowManager, "reachable_block_mask", "every_window_block_cached")


@window
def window_a_token_longer(plant: Plant) -> None:
    skipping_less(plant, SlidingWindowManager)


@window
def last_boundary_not_kept(plant: Plant) -> None:
    def mask(original: Any, *args: Any, reachable_boundaries: Sequence[int], **rest: Any) -> Any:
        kept = reachable_boundaries[: max(1, len(reachable_boundaries) - 1)]
        return original(*args, reachable_boundaries=kept, **rest)

    plant.around(SlidingWindowManager, "reachable_block_mask", mask)


@window
def no_extra_retention(plant: Plant) -> None:
    plant.after_init(SlidingWindowManager, lambda self: setattr(self, "extra_retained_tokens", 0))


@window
def windows_not_capped(plant: Plant) -> None:
    plant.after_init(
        SlidingWindowManager,
        lambda self: setattr(self, "max_admission_blocks_per_request", None),
    )


@chunked
def chunk_a_token_longer(plant: Plant) -> None:
    skipping_less(plant, ChunkedLocalAttentionManager)


@chunked
def chunk_of_one_block_more(plant: Plant) -> None:
    def change(self: Any) -> None:
        self.attention_chunk_size += self.block_size

    plant.after_init(ChunkedLocalAttentionManager, change)


rswa.lose(RSWAManager, "remove_skipped_blocks", "rswa_keeps_everything")


@rswa
def rswa_ignores_the_prompt(plant: Plant) -> None:
    def remove(original: Any, self: Any, request_id: str, computed: int, prompt: Any = None) -> Any:
        return original(self, request_id, computed, prompt and max(prompt - self.block_size, 0))

    plant.around(RSWAManager, "remove_skipped_blocks", remove)


@circular
def ring_needs_a_block_more(plant: Plant) -> None:
    needing_more(plant, CircularBufferManager)


@circular
def ring_given_anew_at_each_load(plant: Plant) -> None:
    inherited = SingleTypeKVCacheManager.allocate_external_computed_blocks
    plant.put(CircularBufferManager, "allocate_external_computed_blocks", inherited)


@cross
def cross_attention_needs_a_block_more(plant: Plant) -> None:
    def get_num_blocks(self: Any, *args: Any, **kwargs: Any) -> Any:
        needed = SingleTypeKVCacheManager.get_num_blocks_to_allocate(self, *args, **kwargs)
        return needed + (needed > 0)

    plant.put(CrossAttentionManager, "get_num_blocks_to_allocate", get_num_blocks)


@cross
def cross_attention_allocates_a_block_more(plant: Plant) -> None:
    def allocate(self: Any, request_id: str, num_tokens: int, *rest: Any) -> Any:
        more = num_tokens + (self.block_size if num_tokens else 0)
        return SingleTypeKVCacheManager.allocate_new_blocks(self, request_id, more, *rest)

    plant.put(CrossAttentionManager, "allocate_new_blocks", allocate)
