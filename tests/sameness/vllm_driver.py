"""vLLM's KVCacheManager, its own or one with the same interface, behind the harness's interface."""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch
from vllm.distributed.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KVCacheEvent,
)
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_manager import (
    KVCacheBlocks,
    KVCacheManager,
)
from vllm.v1.core.single_type_kv_cache_manager import (
    register_all_kvcache_specs,
)
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request, RequestStatus

from .drivers import (
    STATS_FIELDS,
    Allocation,
    BlockIds,
    Demand,
    Event,
    Events,
    Hit,
    NewRequest,
    PoolState,
    Progress,
    TableViews,
)
from .scenario import Group, HashAlgorithm, Scenario

# Events then carry whole hashes, as the standalone manager's do.
os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0"
logging.getLogger("vllm").setLevel(logging.ERROR)
register_all_kvcache_specs(None)

_SEED_VARIABLE = "PYTHONHASHSEED"


class ZeroingConfig(KVCacheConfig):  # type: ignore[misc]
    """vLLM zeroes for mixed precisions only; these groups are to stay equal."""

    needs_kv_cache_zeroing = True


class VllmDriver:
    manager_class: type[KVCacheManager] = KVCacheManager

    def __init__(self, scenario: Scenario) -> None:
        self.manager = self.manager_class(
            kv_cache_config=make_config(scenario),
            max_model_len=scenario.max_model_len,
            scheduler_block_size=scenario.scheduler_block_size,
            hash_block_size=scenario.hash_block_size,
            max_in_flight_tokens=scenario.max_in_flight_tokens,
            enable_caching=scenario.enable_caching,
            use_eagle=scenario.use_eagle,
            num_hash_lookahead_tokens=scenario.num_hash_lookahead_tokens,
            num_prefill_lookahead=scenario.num_prefill_lookahead,
            log_stats=scenario.log_stats,
            enable_kv_cache_events=scenario.enable_events,
            watermark=scenario.watermark,
        )
        self._pool = self.manager.block_pool
        self._hasher = make_hasher(scenario)
        self._requests: dict[str, Any] = {}
        self._hits: dict[str, Any] = {}
        self._popped: deque[list[Any]] = deque()
        self._held: deque[list[Any]] = deque()
        self._unordered: list[tuple[int, int]] = []
        self._watch_removals()

    def _watch_removals(self) -> None:
        """A block's partial-tail hashes leave a Python set, in no particular order."""
        emit = self._pool._emit_block_removed_events

        def emit_and_note(block_hashes: list[bytes]) -> None:
            start = len(self._pool.kv_event_queue)
            emit(block_hashes)
            if len(block_hashes) > 2:
                self._unordered.append((start + 1, len(self._pool.kv_event_queue)))

        self._pool._emit_block_removed_events = emit_and_note

    def new_request(self, request: NewRequest) -> list[bytes]:
        made = Request(
            request_id=request.request_id,
            prompt_token_ids=request.prompt,
            sampling_params=_sampling_params(request),
            pooling_params=None,
            lora_request=_lora_request(request.lora),
            cache_salt=request.cache_salt,
            block_hasher=self._hasher,
            session_id=request.session_id,
        )
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

    def set_progress(self, request_id: str, progress: Progress) -> None:
        request = self._requests[request_id]
        request.num_computed_tokens = progress.num_computed_tokens
        request.num_in_flight_tokens = progress.num_in_flight_tokens
        request.shared_prefix_boundary = progress.shared_prefix_boundary
        request.num_preemptions = progress.num_preemptions
        request.status = RequestStatus[progress.status]

    def forget(self, request_id: str) -> None:
        del self._requests[request_id]
        self._hits.pop(request_id, None)

    def look_up(self, request_id: str, max_hit: int | None, for_connector: bool) -> Hit:
        request = self._requests[request_id]
        diverged = False
        if for_connector:
            blocks, num_tokens, boundary, diverged = self.manager.get_computed_blocks_for_connector(
                request, max_hit
            )
        else:
            blocks, num_tokens, boundary = self.manager.get_computed_blocks(request, max_hit)
        self._hits[request_id] = blocks
        return Hit(blocks.get_block_ids(), num_tokens, boundary, diverged)

    def truncate_hit(self, request_id: str, num_tokens: int) -> BlockIds:
        hit = self.manager.truncate_computed_blocks(self._hits[request_id], num_tokens)
        self._hits[request_id] = hit
        return _ids(hit)

    def blocks_needed(self, request_id: str, demand: Demand) -> int:
        blocks = self._hits[request_id] if demand.with_hit else self.manager.empty_kv_cache_blocks
        needed: int = self.manager.coordinator.get_num_blocks_to_allocate(
            request_id=request_id,
            num_tokens=demand.num_tokens,
            new_computed_blocks=blocks.blocks,
            num_encoder_tokens=0,
            total_computed_tokens=demand.total_computed_tokens,
            num_local_computed_tokens=demand.num_local_computed_tokens,
            num_tokens_main_model=demand.num_tokens,
            apply_admission_cap=demand.apply_admission_cap,
        )
        return needed

    def allocate(self, request_id: str, allocation: Allocation) -> BlockIds | None:
        blocks = self.manager.allocate_slots(
            self._requests[request_id],
            allocation.num_new_tokens,
            num_new_computed_tokens=allocation.num_new_computed_tokens,
            new_computed_blocks=self._hit_blocks(request_id, allocation),
            num_lookahead_tokens=allocation.num_lookahead_tokens,
            num_external_computed_tokens=allocation.num_external_computed_tokens,
            delay_cache_blocks=allocation.delay_cache_blocks,
            full_sequence_must_fit=allocation.full_sequence_must_fit,
            reserved_blocks=allocation.reserved_blocks,
            has_scheduled_reqs=allocation.has_scheduled_reqs,
            skip_zeroing_group_ids=allocation.skip_zeroing_group_ids,
        )
        return None if blocks is None else _ids(blocks)

    def _hit_blocks(self, request_id: str, allocation: Allocation) -> KVCacheBlocks | None:
        empty = self.manager.empty_kv_cache_blocks
        match allocation.hit_form:
            case "none":
                return None
            case "empty":
                return empty
            case "new_empty":
                return empty.new_empty()
            case "padded":
                return self._hits[request_id] + empty.new_empty()
            case "rebuilt":
                return self.manager.create_kv_cache_blocks(self._hits[request_id].blocks)
            case "hit":
                return self._hits[request_id]

    def cache_blocks(self, request_id: str, num_computed_tokens: int) -> None:
        self.manager.cache_blocks(self._requests[request_id], num_computed_tokens)

    def remove_skipped(
        self, request_id: str, processed_tokens: int, num_prompt_tokens: int | None
    ) -> None:
        self.manager.remove_skipped_blocks(request_id, processed_tokens, num_prompt_tokens)

    def free(self, request_id: str) -> None:
        self.manager.free(self._requests[request_id])

    def pop_blocks(self, request_id: str) -> list[int]:
        blocks = self.manager.pop_blocks_for_free(self._requests[request_id])
        self._popped.append(blocks)
        return _block_ids(blocks)

    def return_popped(self) -> None:
        self._pool.free_blocks(reversed(self._popped.popleft()))

    def block_ids(self, request_id: str) -> BlockIds:
        ids: BlockIds = self.manager.get_block_ids(request_id)
        return ids

    def table_views(self, request_id: str, num_computed_tokens: int) -> TableViews:
        blocks = self.manager.get_blocks(request_id)
        every_other = range(0, len(blocks.blocks), 2)
        return TableViews(
            for_computed_tokens=self.manager.get_block_ids_for_computed_tokens(
                request_id, num_computed_tokens
            ),
            selected=blocks.get_block_ids(allow_none=True, group_ids=every_other),
            unhashed=blocks.get_unhashed_block_ids_all_groups(),
            as_arrays=_ids(blocks),
            as_blocks=[[(b.block_id, b.ref_cnt, b.is_null) for b in g] for g in blocks.blocks],
            num_groups=len(blocks.blocks),
        )

    def estimate_cached_tokens(self, request_id: str) -> int:
        return int(self.manager.estimate_cached_tokens(self._requests[request_id]))

    def num_common_prefix_blocks(self, request_id: str) -> list[int]:
        return list(self.manager.get_num_common_prefix_blocks(request_id))

    def evict(self, block_ids: list[int]) -> None:
        self.manager.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        return bool(self.manager.reset_prefix_cache())

    def take_events(self) -> Events:
        unordered, self._unordered = self._unordered, []
        return Events([_event(e) for e in self.manager.take_events()], unordered)

    def take_new_block_ids(self) -> list[int]:
        return list(self.manager.take_new_block_ids())

    def record_for_zeroing(self, request_id: str, start_token: int) -> None:
        self.manager.record_blocks_for_zeroing(request_id, start_token)

    def record_stats(self, request_id: str, num_hits: int) -> None:
        self.manager.record_prefix_cache_stats(self._requests[request_id], num_hits)

    def take_stats(self) -> dict[str, int] | None:
        stats = self.manager.make_prefix_cache_stats()
        return None if stats is None else {name: getattr(stats, name) for name in STATS_FIELDS}

    def end_step(self, request_id: str) -> list[object]:
        self.manager.new_step_starts()
        copies, retained = self.manager.take_kv_cache_block_copies()
        return [
            list(copies),
            list(retained),
            dict(self.manager.take_boundary_state_offloads()),
            list(self.manager.finalize_partial_tail_offloads(self._requests[request_id])),
        ]

    def cached_block(self, block_hash: bytes, group_ids: list[int]) -> list[int] | None:
        blocks = self._pool.get_cached_block(block_hash, group_ids)
        return None if blocks is None else _block_ids(blocks)

    def hold_cached(self, block_hash: bytes, group_ids: list[int]) -> list[int] | None:
        blocks = self._pool.get_cached_block(block_hash, group_ids)
        if blocks is None:
            return None
        self._pool.touch(blocks)
        self._held.append(blocks)
        return _block_ids(blocks)

    def take_blocks(self, num_blocks: int) -> list[int]:
        blocks = self._pool.get_new_blocks(num_blocks)
        self._held.append(blocks)
        return _block_ids(blocks)

    def release_held(self) -> None:
        self._pool.free_blocks(self._held.popleft())

    def num_free_blocks(self) -> int:
        return int(self._pool.get_num_free_blocks())

    def state(self) -> PoolState:
        pool = self._pool
        return PoolState(
            free_queue=_block_ids(pool.free_block_queue.get_all_free_blocks()),
            num_free_blocks=pool.get_num_free_blocks(),
            usage=self.manager.usage,
            ref_counts=[b.ref_cnt for b in pool.blocks],
            block_hashes=[b.block_hash for b in pool.blocks],
            block_hash_num_tokens=[b.block_hash_num_tokens for b in pool.blocks],
        )

    def state_digest(self) -> bytes:
        """vLLM has none; its state is compared in full."""
        return b""


def make_config(scenario: Scenario) -> KVCacheConfig:
    config_class = ZeroingConfig if scenario.needs_zeroing else KVCacheConfig
    groups = [
        KVCacheGroupSpec([f"layer.{i}"], make_spec(g), is_eagle_group=g.is_eagle)
        for i, g in enumerate(scenario.groups)
    ]
    return config_class(
        num_blocks=scenario.num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=groups,
        prefix_cache_retention_interval=scenario.retention_interval,
    )


def make_spec(group: Group) -> KVCacheSpec:
    shape = {
        "block_size": group.block_size,
        "num_kv_heads": 1,
        "head_size": 64 + group.layout,
        "dtype": torch.float16,
    }
    window = {
        "sliding_window": group.window,
        "extra_retained_tokens": group.extra_retained_tokens,
    }
    match group.kind:
        case "full_attention":
            return FullAttentionSpec(**shape)
        case "mla_attention":
            return MLAAttentionSpec(**shape)
        case "sliding_window":
            return SlidingWindowSpec(**shape, **window)
        case "sliding_window_mla":
            return SlidingWindowMLASpec(
                **shape, **window, bounded_replay=not group.prefix_cacheable
            )
        case "chunked_local_attention":
            return ChunkedLocalAttentionSpec(**shape, attention_chunk_size=group.window)


def make_hasher(scenario: Scenario) -> Callable[[Request], list[bytes]]:
    init_none_hash(scenario.hash_algorithm)
    hasher: Callable[[Request], list[bytes]] = kv_cache_utils.get_request_block_hasher(
        scenario.hash_block_size,
        get_hash_fn_by_name(scenario.hash_algorithm),
        scenario.num_hash_lookahead_tokens,
    )
    return hasher


def init_none_hash(algorithm: HashAlgorithm) -> None:
    """vLLM draws a random seed for xxhash; a reproduction needs a fixed one."""
    before = os.environ.get(_SEED_VARIABLE)
    os.environ[_SEED_VARIABLE] = kv_cache_utils.DEFAULT_NONE_HASH_SEED
    try:
        kv_cache_utils.init_none_hash(get_hash_fn_by_name(algorithm))
    finally:
        os.environ.pop(_SEED_VARIABLE)
        if before is not None:
            os.environ[_SEED_VARIABLE] = before


def _sampling_params(request: NewRequest) -> SamplingParams:
    mode = "full" if request.full_report else "incremental"
    return SamplingParams(
        max_tokens=1,
        extra_args={"kv_cache_report_mode": mode},
        skip_reading_prefix_cache=request.skip_lookup,
    )


def _lora_request(lora: tuple[str, str] | None) -> LoRARequest | None:
    if lora is None:
        return None
    name, path = lora
    return LoRARequest(lora_name=name, lora_int_id=1, lora_path=path)


def _ids(blocks: KVCacheBlocks) -> BlockIds:
    ids: BlockIds = blocks.get_block_ids()
    return ids


def _block_ids(blocks: Iterable[Any]) -> list[int]:
    return [block.block_id for block in blocks]


def _event(event: KVCacheEvent) -> Event:
    match event:
        case BlockStored():
            return {
                "type": "stored",
                "block_hashes": event.block_hashes,
                "parent_block_hash": event.parent_block_hash,
                "token_ids": list(event.token_ids),
                "block_size": event.block_size,
                "medium": event.medium,
                "lora_name": event.lora_name,
                "extra_keys": event.extra_keys,
                "group_idx": event.group_idx,
                "kv_cache_spec_kind": event.kv_cache_spec_kind,
                "kv_cache_spec_sliding_window": event.kv_cache_spec_sliding_window,
                "session_id": event.session_id,
                "lookahead_token_ids": event.lookahead_token_ids,
            }
        case BlockRemoved():
            return {
                "type": "removed",
                "block_hashes": event.block_hashes,
                "medium": event.medium,
                "group_idx": event.group_idx,
            }
        case AllBlocksCleared():
            return {"type": "cleared"}
        case _:
            raise TypeError(f"unknown event {event!r}")
