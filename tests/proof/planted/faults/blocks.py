"""Errors in the pool of blocks, its queue of free blocks, its index and its events."""

from typing import Any

from vllm.v1.core.block_pool import BlockHashToBlockMap, BlockPool
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue

from ..fault import Faults, Plant

pool = Faults("pool")
queue = Faults("queue of free blocks")
index = Faults("index of hashes")
events = Faults("events")
AREAS = (pool, queue, index, events)


@queue
def uncached_blocks_at_the_end(plant: Plant) -> None:
    plant.put(FreeKVCacheBlockQueue, "prepend_n", FreeKVCacheBlockQueue.append_n)


@queue
def freed_blocks_at_the_front(plant: Plant) -> None:
    plant.put(FreeKVCacheBlockQueue, "append_n", FreeKVCacheBlockQueue.prepend_n)


@queue
def appended_in_reverse(plant: Plant) -> None:
    def append_n(original: Any, self: Any, blocks: Any) -> None:
        original(self, list(blocks)[::-1])

    plant.around(FreeKVCacheBlockQueue, "append_n", append_n)


@queue
def taken_in_reverse(plant: Plant) -> None:
    plant.around(FreeKVCacheBlockQueue, "popleft_n", lambda original, *args: original(*args)[::-1])


@queue
def a_walk_begins_one_late(plant: Plant) -> None:
    def iter_blocks_after(original: Any, *args: Any) -> Any:
        return iter(list(original(*args))[1:])

    plant.around(FreeKVCacheBlockQueue, "iter_blocks_after", iter_blocks_after)


@index
def newest_of_equal_blocks(plant: Plant) -> None:
    def get_one_block(original: Any, self: Any, key: Any) -> Any:
        blocks = self._cache.get(key)
        return next(reversed(blocks.values())) if isinstance(blocks, dict) else original(self, key)

    plant.around(BlockHashToBlockMap, "get_one_block", get_one_block)


@pool
def another_error(plant: Plant) -> None:
    def get_new_blocks(original: Any, *args: Any) -> Any:
        try:
            return original(*args)
        except ValueError as error:
            raise RuntimeError(*error.args) from None

    plant.around(BlockPool, "get_new_blocks", get_new_blocks)


@pool
def watchers_told_late(plant: Plant) -> None:
    notify = BlockPool._notify_reuse

    def get_new_blocks(original: Any, self: Any, num_blocks: int) -> Any:
        blocks = original(self, num_blocks)
        notify(self, blocks)
        return blocks

    plant.put(BlockPool, "_notify_reuse", lambda *_: None)
    plant.around(BlockPool, "get_new_blocks", get_new_blocks)


@pool
def usage_of_one_block_more(plant: Plant) -> None:
    plant.around(
        BlockPool, "get_usage", lambda original, self: original(self) + 1 / self.num_gpu_blocks
    )


@pool
def reset_though_blocks_are_held(plant: Plant) -> None:
    plant.around(BlockPool, "reset_prefix_cache", lambda original, self: original(self) or True)


@pool
def evicts_all_but_one(plant: Plant) -> None:
    def evict_blocks(original: Any, self: Any, block_ids: Any) -> None:
        original(self, set(sorted(block_ids)[1:]))

    plant.around(BlockPool, "evict_blocks", evict_blocks)


@pool
def a_hit_is_not_told_to_metrics(plant: Plant) -> None:
    def touch(original: Any, self: Any, blocks: Any) -> None:
        collector, self.metrics_collector = self.metrics_collector, None
        original(self, blocks)
        self.metrics_collector = collector

    plant.around(BlockPool, "touch", touch)


@pool
def blocks_are_hit_in_one_group_less(plant: Plant) -> None:
    def get_cached_block(original: Any, self: Any, block_hash: Any, group_ids: Any) -> Any:
        found = original(self, block_hash, group_ids)
        return None if len(group_ids) > 2 else found

    plant.around(BlockPool, "get_cached_block", get_cached_block)


events.lose(BlockPool, "_emit_block_removed_events", "removals_not_told")


def losing(plant: Plant, field: str) -> None:
    def build(original: Any, *args: Any, **kwargs: Any) -> Any:
        event = original(*args, **kwargs)
        setattr(event, field, None)
        return event

    plant.around(BlockPool, "_build_block_stored_event", build)


@events
def parent_hash_lost(plant: Plant) -> None:
    losing(plant, "parent_block_hash")


@events
def extra_keys_lost(plant: Plant) -> None:
    losing(plant, "extra_keys")


@events
def adapter_lost(plant: Plant) -> None:
    losing(plant, "lora_name")


@events
def session_lost(plant: Plant) -> None:
    losing(plant, "session_id")
