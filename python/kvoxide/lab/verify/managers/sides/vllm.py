"""vLLM's KVCacheManager, its own or one with the same interface, adapted to the harness's
interface."""

import logging
import os
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.kv_cache_utils import BlockHash, make_block_hash_with_group_id
from vllm.v1.request import Request, RequestStatus

from kvoxide.lab.verify import installed
from kvoxide.lab.verify.managers.driver import (
    BlockIds,
    Demand,
    Event,
    Events,
    HitViews,
    Index,
    Inside,
    NewRequest,
)
from kvoxide.lab.verify.managers.scenarios import Scenario
from kvoxide.lab.verify.managers.sides.common import CommonDriver, block_ids_of, ids_of
from kvoxide.lab.verify.managers.sides.vllm_config import make_config, make_hasher, make_request
from kvoxide.lab.verify.managers.sides.wrappers import Wrappers, plain
from kvoxide.lab.verify.reference import require_vllms_manager

# Events then carry whole hashes, as the standalone manager's events do.
os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0"
logging.getLogger("vllm").setLevel(logging.ERROR)

UNSEEN = (
    "new_block_ids",
    "cached_blocks_this_step",
    "last_state_block_idx",
    "_allocated_block_reqs",
    "_checkpoints",
    "_num_retired_blocks",
    "_partial_hit_reqs",
    "_pending_boundary_state_offloads",
    "_pending_cow_copies",
    "_producer_partial_tail_reqs",
)
"""Attributes that a group's manager in vLLM has and no method shows."""

_EVENT_TYPES = {
    "BlockStored": "stored",
    "BlockRemoved": "removed",
    "AllBlocksCleared": "cleared",
}


class Callbacks:
    """A metrics collector and a watcher of reused blocks. It notes its calls in order."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, int]] = []

    def on_block_allocated(self, block: Any) -> None:
        self.noted.append(("allocated", block.block_id))

    def on_block_accessed(self, block: Any) -> None:
        self.noted.append(("accessed", block.block_id))

    def on_block_evicted(self, block: Any) -> None:
        self.noted.append(("evicted", block.block_id))

    def on_reuse(self, block: Any) -> None:
        self.noted.append(("reused", block.block_id))

    def reset(self) -> None:
        self.noted.append(("reset", -1))

    def take(self) -> list[tuple[str, int]]:
        noted, self.noted = self.noted, []
        return noted


class VllmDriver(CommonDriver):
    has_vllm_interface = True
    errors_change_nothing = False
    status_class = RequestStatus
    manager_class: type[KVCacheManager] = KVCacheManager

    def __init__(self, scenario: Scenario) -> None:
        self._callbacks = Callbacks()
        self._wrappers = Wrappers()
        arguments = installed.without_missing(
            {
                "max_model_len": scenario.max_model_len,
                "scheduler_block_size": scenario.scheduler_block_size,
                "hash_block_size": scenario.hash_block_size,
                "max_in_flight_tokens": scenario.max_in_flight_tokens,
                "enable_caching": scenario.enable_caching,
                "use_eagle": scenario.use_eagle,
                "num_hash_lookahead_tokens": scenario.num_hash_lookahead_tokens,
                "num_prefill_lookahead": scenario.num_prefill_lookahead,
                "log_stats": scenario.log_stats,
                "enable_kv_cache_events": scenario.enable_events,
                "watermark": scenario.watermark,
                "dcp_world_size": scenario.dcp_world_size,
                "enable_mamba_shared_prefix_checkpoint": scenario.shared_prefix_checkpoint,
                "metrics_collector": self._callbacks if scenario.collects_metrics else None,
            }
        )
        super().__init__(self.manager_class(make_config(scenario), **arguments))
        if self.manager_class is KVCacheManager:
            require_vllms_manager(self.manager)
        self._hasher = make_hasher(scenario)
        self._unordered: list[tuple[int, int]] = []
        if self.manager_class is KVCacheManager:
            self._watch_removals()

    def _watch_removals(self) -> None:
        """Note where a block's partial-tail hashes leave a Python set, in no particular order."""
        emit = self._pool._emit_block_removed_events

        def emit_and_note(block_hashes: list[bytes]) -> None:
            start = len(self._pool.kv_event_queue)
            emit(block_hashes)
            if len(block_hashes) > 2:
                self._unordered.append((start + 1, len(self._pool.kv_event_queue)))

        self._pool._emit_block_removed_events = emit_and_note

    def new_request(self, request: NewRequest) -> list[bytes]:
        made = make_request(request, self._hasher)
        self._requests[request.request_id] = made
        return list(made.block_hashes)

    def request(self, request_id: str) -> Request:
        return self._requests[request_id]

    def append_tokens(
        self, request_id: str, tokens: list[int], new_hashes: list[bytes] | None
    ) -> list[bytes]:
        del new_hashes
        request = self._requests[request_id]
        request.append_output_token_ids(tokens[0] if len(tokens) == 1 else tokens)
        return list(request.block_hashes)

    def blocks_needed(self, request_id: str, demand: Demand) -> int:
        blocks = self._hits[request_id] if demand.with_hit else self.manager.empty_kv_cache_blocks
        needed: int = self.manager.coordinator.get_num_blocks_to_allocate(
            request_id=request_id,
            num_tokens=demand.num_tokens,
            new_computed_blocks=blocks.blocks,
            num_encoder_tokens=demand.num_encoder_tokens,
            total_computed_tokens=demand.total_computed_tokens,
            num_local_computed_tokens=demand.num_local_computed_tokens,
            num_tokens_main_model=demand.num_tokens,
            apply_admission_cap=demand.apply_admission_cap,
            prefill_end=demand.prefill_end,
        )
        return needed

    def take_events(self) -> Events:
        unordered, self._unordered = self._unordered, []
        return Events([_event(e) for e in self.manager.take_events()], unordered)

    def _free_queue(self) -> list[int]:
        return block_ids_of(self._pool.free_block_queue.get_all_free_blocks())

    def state_digest(self) -> bytes:
        """Return a digest of the state that ``state`` and ``inside`` leave out."""
        groups = self.manager.coordinator.single_type_managers
        return repr([_unseen_state(group) for group in groups]).encode()

    def inside(self) -> Inside:
        pool = self._pool
        groups = self.manager.coordinator.single_type_managers
        return Inside(
            further_hashes={i: set(h) for i, h in pool.cached_block_hashes_by_block.items()},
            num_keys=len(pool.cached_block_hash_to_block),
            num_pending_events=len(pool.kv_event_queue),
            tables=[{r: block_ids_of(t) for r, t in g.req_to_blocks.items() if t} for g in groups],
            num_cached_blocks=[dict(g.num_cached_block) for g in groups],
            callbacks=self._callbacks.take(),
            wrapped_calls=self._wrappers.take(),
        )

    def wrap(self, owner: str, name: str) -> None:
        self._wrappers.wrap(self._owner(owner), owner, name)

    def set_field(self, owner: str, name: str, value: object) -> None:
        setattr(self._owner(owner), name, value)

    def is_vllms_own(self) -> bool:
        return type(self.manager) is KVCacheManager

    def _owner(self, owner: str) -> Any:
        groups = self.manager.coordinator.single_type_managers
        return {
            "manager": self.manager,
            "coordinator": self.manager.coordinator,
            "pool": self._pool,
            "queue": self._pool.free_block_queue,
            "index": self._pool.cached_block_hash_to_block,
            "group": groups[-1] if groups else None,
        }[owner]

    def remembered(self) -> object:
        """Return state of the groups of vLLM's own manager that no method shows, for requests with
        blocks. For other requests, vLLM writes this state anew before it reads it."""
        groups = self.manager.coordinator.single_type_managers
        return [
            [_of_holders(group, value) for value in map(plain, _unseen_state(group))]
            for group in groups
        ]

    def hit_views(self, request_id: str) -> HitViews:
        hit, empty = self._hits[request_id], self.manager.empty_kv_cache_blocks
        return HitViews(
            as_blocks=[
                [(b.block_id, b.ref_cnt, b.block_hash, b.block_hash_num_tokens) for b in group]
                for group in hit.blocks
            ],
            types=[type(group).__name__ for group in hit.blocks],
            ids_or_none=hit.get_block_ids(allow_none=True),
            unhashed=hit.get_unhashed_block_ids_all_groups(),
            is_empty=hit == empty,
            equals_itself_rebuilt=hit == self.manager.create_kv_cache_blocks(hit.blocks),
            differs_from_itself_twice=hit != empty and hit != hit + hit,
            table_with_hit=ids_of(self.manager.get_blocks(request_id) + hit),
        )

    def find_hit(self, request_id: str, num_hashes: int, max_length: int) -> tuple[Any, ...]:
        hashes = self._requests[request_id].block_hashes[:num_hashes]
        blocks, length, uncached = self.manager.coordinator.find_longest_cache_hit(
            hashes, max_length
        )
        return [block_ids_of(group) for group in blocks], length, uncached

    def find_hit_per_group(
        self, request_id: str, num_hashes: int, max_length: int
    ) -> tuple[Any, ...]:
        hashes = self._requests[request_id].block_hashes[:num_hashes]
        find = self.manager.coordinator.find_longest_cache_hit_per_group
        blocks, lengths = find(hashes, max_length)
        return [block_ids_of(group) for group in blocks], lengths

    def unhashed_ids(self, request_id: str) -> list[int]:
        return list(self._hits[request_id].get_unhashed_block_ids())

    def ids_of_groups(self, request_id: str, group_ids: list[int]) -> BlockIds:
        ids: BlockIds = self._hits[request_id].get_block_ids(group_ids=group_ids)
        return ids

    def free_ids_after(self, block_id: int | None) -> list[int]:
        cursor = None if block_id is None else self._pool.blocks[block_id]
        return block_ids_of(self._pool.free_block_queue.iter_blocks_after(cursor))

    def unpin_held(self, copies: int) -> None:
        blocks = self._held.popleft()
        try:
            self._pool.unpin_blocks(blocks * copies, self._callbacks.on_reuse)
        except Exception:
            self._held.appendleft(blocks)
            raise

    def unpin(self, block_ids: list[int]) -> None:
        blocks = [self._pool.blocks[block_id] for block_id in block_ids]
        self._pool.unpin_blocks(blocks, self._callbacks.on_reuse)

    def allocate_with_held(self, request_id: str, num_groups: int) -> BlockIds | None:
        hit = KVCacheBlocks(tuple(list(self._held[0]) for _ in range(num_groups)))
        num_tokens = len(self._held[0]) * self.manager.coordinator.scheduler_block_size
        blocks = self.manager.allocate_slots(self._requests[request_id], 1, num_tokens, hit)
        return None if blocks is None else ids_of(blocks)

    def truncate_groups(self, request_id: str, num_groups: int) -> BlockIds:
        groups = KVCacheBlocks(tuple(self._hits[request_id].blocks[:num_groups]))
        return ids_of(self.manager.truncate_computed_blocks(groups, 0))

    def set_hash(self, block_id: int, block_hash: bytes) -> None:
        self._pool.blocks[block_id].set_block_hash(block_hash, 1)

    def set_num_free(self, num_blocks: int | None) -> int:
        """Set the number of free blocks. None sets it back to the true number."""
        queue = self._pool.free_block_queue
        real = len(queue.get_all_free_blocks())
        queue.num_free_blocks = real if num_blocks is None else num_blocks
        return int(self._pool.get_num_free_blocks())

    def index(self, block_hash: bytes) -> Index:
        mapping = self._pool.cached_block_hash_to_block._cache
        groups = range(len(self.manager.coordinator.single_type_managers))
        keys = [make_block_hash_with_group_id(BlockHash(block_hash), i) for i in groups]
        return Index(
            items={key: _ids_of_key(blocks) or [] for key, blocks in mapping.items()},
            num_values=len(list(mapping.values())),
            num_keys=len(mapping),
            found=[_ids_of_key(mapping.get(key)) for key in keys],
        )


def _unseen_state(group: Any) -> list[object]:
    return [getattr(group, name, None) for name in UNSEEN]


def _of_holders(group: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: part for name, part in value.items() if group.req_to_blocks.get(name)}


def _ids_of_key(blocks: Any) -> list[int] | None:
    """Return the id of the block that has a key, or the ids of its several blocks in their
    order."""
    if blocks is None:
        return None
    return list(blocks) if isinstance(blocks, dict) else [blocks.block_id]


def _event(event: Any) -> Event:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    if "token_ids" in fields:
        fields["token_ids"] = list(fields["token_ids"])
    return {"type": _EVENT_TYPES[type(event).__name__], **fields}
