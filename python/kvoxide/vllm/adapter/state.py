"""The state of an engine, for vLLM's own objects to continue with."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.adapter.keys import release_index
from kvoxide.vllm.adapter.tables import release_dict, release_tables


class State:
    """Everything that an engine remembers, as ids and plain values."""

    def __init__(self, engine: VllmManager, num_groups: int) -> None:
        """Read it from ``engine``."""
        self._engine = engine
        self._free, self._ref_counts = engine.queue_for_vllm()
        self._num_free = engine.get_num_free_blocks()
        self._cached = engine.cached_for_vllm()
        self._groups = [engine.group_for_vllm(group_id) for group_id in range(num_groups)]
        self._shared_keys = {key: engine.blocks_of_key(key) for key in self._keys_of_several()}

    def _keys_of_several(self) -> set[bytes]:
        seen: set[bytes] = set()
        several: set[bytes] = set()
        for _, _, keys in self._cached:
            several.update(seen.intersection(keys))
            seen.update(keys)
        return several

    def fill(self, fresh: Any, native: Any) -> None:
        """Bring ``fresh``, vLLM's manager as it was just made, into this state. ``native`` is the
        engine's manager: what it showed to other code stays the same object."""
        pool = fresh.block_pool
        self._fill_blocks(pool, native.block_pool)
        ends = pool.free_block_queue.fake_free_list_head, pool.free_block_queue.fake_free_list_tail
        blocks = self._engine.replace(native, pool.blocks, ends)
        shown = vars(native.block_pool).get("blocks")
        pool.blocks = shown if isinstance(shown, list) else blocks
        pool.null_block = blocks[0]
        self._fill_queue(pool.free_block_queue, native.block_pool.free_block_queue, blocks)
        self._fill_index(pool, native.block_pool, blocks)
        groups = fresh.coordinator.single_type_managers
        views = native.coordinator.single_type_managers
        for group, view, state in zip(groups, views, self._groups, strict=True):
            group._null_block = blocks[0]
            _fill_group(group, view, state, blocks)
        interval = native.coordinator.retention_interval
        fresh.coordinator.retention_interval = interval

    def _fill_blocks(self, pool: Any, shown_pool: Any) -> None:
        for block, ref_count in zip(pool.blocks, self._ref_counts, strict=True):
            block.pool = shown_pool
            block.ref_cnt = ref_count
            block.prev_free_block = block.next_free_block = None
        for block_id, num_tokens, keys in self._cached:
            pool.blocks[block_id].set_block_hash(keys[0], num_tokens)

    def _fill_queue(self, queue: Any, shown: Any, blocks: list[Any]) -> None:
        queue.fake_free_list_head = shown.fake_free_list_head
        queue.fake_free_list_tail = shown.fake_free_list_tail
        free = [blocks[block_id] for block_id in self._free]
        ring = [queue.fake_free_list_head, *free, queue.fake_free_list_tail]
        for block, next_block in pairwise(ring):
            block.next_free_block, next_block.prev_free_block = next_block, block
        queue.num_free_blocks = self._num_free

    def _fill_index(self, pool: Any, shown: Any, blocks: list[Any]) -> None:
        index = pool.cached_block_hash_to_block
        for block_id, _, keys in self._cached:
            for key in keys:
                if key not in self._shared_keys:
                    index.insert(key, blocks[block_id])
        for key, block_ids in self._shared_keys.items():
            for block_id in block_ids:
                index.insert(key, blocks[block_id])
        release_index(shown.cached_block_hash_to_block, index._cache)
        aliases = {block_id: set(keys[1:]) for block_id, _, keys in self._cached if keys[1:]}
        kept = vars(shown).get("cached_block_hashes_by_block")
        pool.cached_block_hashes_by_block = release_dict(kept, aliases)


def _fill_group(group: Any, view: Any, state: dict[str, Any], blocks: list[Any]) -> None:
    tables = state["req_to_blocks"]
    rows = {name: [blocks[i] for i in ids] for name, (ids, _) in tables.items()}
    counts = {name: count for name, (_, count) in tables.items() if count is not None}
    shown = vars(view)
    group.req_to_blocks = release_tables(view.req_to_blocks, rows)
    group.num_cached_block = release_dict(shown.get("num_cached_block"), counts)
    group.new_block_ids = state["new_block_ids"]
    copies = shown["_pending_cow_copies"]
    copies[:0] = _blocks_of(state["_pending_cow_copies"], blocks)
    group._pending_cow_copies = copies
    group._partial_hit_reqs = {
        name: (position, blocks[i]) for name, (position, i) in state["_partial_hit_reqs"].items()
    }
    group._pending_boundary_state_offloads = [
        (name, group_id, blocks[i], num_tokens)
        for name, group_id, i, num_tokens in state["_pending_boundary_state_offloads"]
    ]
    if not hasattr(group, "cached_blocks_this_step"):
        return
    group.cached_blocks_this_step = set(state["cached_blocks_this_step"])
    if not hasattr(group, "last_state_block_idx"):
        return
    group.last_state_block_idx = state["last_state_block_idx"]
    group._num_retired_blocks = state["_num_retired_blocks"]
    group._allocated_block_reqs = set(state["_allocated_block_reqs"])
    group._checkpoints = release_dict(shown.get("_checkpoints"), state["_checkpoints"])
    group._producer_partial_tail_reqs = {
        name: (blocks[i], num_tokens)
        for name, (i, num_tokens) in state["_producer_partial_tail_reqs"].items()
    }


def _blocks_of(pairs: Iterable[tuple[int, int]], blocks: list[Any]) -> list[tuple[Any, Any]]:
    return [(blocks[source], blocks[target]) for source, target in pairs]
