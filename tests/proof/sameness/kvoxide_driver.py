"""kvoxide's standalone KVCacheManager behind the harness's interface."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from kvoxide import _core

from .drivers import (
    STATS_FIELDS,
    Allocation,
    BlockIds,
    Copies,
    Demand,
    Event,
    Events,
    Hit,
    NewRequest,
    Offloads,
    PoolState,
    Progress,
    TableViews,
)
from .scenario import Group, Scenario


class KvoxideDriver:
    has_vllm_interface = False
    errors_change_nothing = True

    def __init__(self, scenario: Scenario) -> None:
        self._ready_made_hashes = scenario.ready_made_hashes
        self.manager = make_manager(scenario)
        self._pool = self.manager.block_pool
        self._hasher = _core.BlockHasher(scenario.hash_block_size, scenario.hash_algorithm)
        self._requests: dict[str, _core.Request] = {}
        self._num_requests = 0
        self._hits: dict[str, _core.KVCacheBlocks] = {}
        self._popped: deque[list[_core.KVCacheBlock]] = deque()
        self._held: deque[list[_core.KVCacheBlock]] = deque()
        self._copied: deque[list[_core.KVCacheBlock]] = deque()

    def new_request(self, request: NewRequest) -> list[bytes]:
        made = self._make_request(request)
        self._requests[request.request_id] = made
        self._num_requests += 1
        return made.block_hashes

    def _make_request(self, request: NewRequest) -> _core.Request:
        if self._ready_made_hashes:
            assert request.block_hashes is not None
            return _core.Request(
                request.request_id,
                block_hashes=request.block_hashes,
                num_prompt_tokens=len(request.prompt),
                cache_salt=request.cache_salt,
                lora=request.lora,
                session_id=request.session_id,
                skip_reading_prefix_cache=request.skip_lookup,
                kv_cache_report_mode="full" if request.full_report else "incremental",
            )
        return _core.Request(
            request.request_id,
            self._in_some_form(request.prompt),
            block_hasher=self._hasher,
            cache_salt=request.cache_salt,
            lora=request.lora,
            session_id=request.session_id,
            skip_reading_prefix_cache=request.skip_lookup,
            kv_cache_report_mode="full" if request.full_report else "incremental",
        )

    def _in_some_form(self, tokens: list[int]) -> "Sequence[int] | _core.TokenArray":
        match self._num_requests % 4:
            case 0:
                return np.array(tokens, dtype=np.int32)
            case 1:
                return np.array(tokens, dtype=np.int64)
            case 2:
                return np.array(tokens, dtype=np.uint32)
            case _:
                return tokens

    def append_tokens(
        self, request_id: str, tokens: list[int], new_hashes: list[bytes] | None
    ) -> list[bytes]:
        request = self._requests[request_id]
        if self._ready_made_hashes:
            assert new_hashes is not None
            request.append_block_hashes(new_hashes, len(tokens))
        else:
            request.append_output_token_ids(tokens[0] if len(tokens) == 1 else tokens)
        return request.block_hashes

    def set_progress(self, request_id: str, progress: Progress) -> None:
        request = self._requests[request_id]
        request.num_computed_tokens = progress.num_computed_tokens
        request.num_in_flight_tokens = progress.num_in_flight_tokens
        request.shared_prefix_boundary = progress.shared_prefix_boundary
        request.num_preemptions = progress.num_preemptions
        request.status = getattr(_core.RequestStatus, progress.status)

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
        return Hit(_ids(blocks), num_tokens, boundary, diverged)

    def truncate_hit(self, request_id: str, num_tokens: int) -> BlockIds:
        hit = self.manager.truncate_computed_blocks(self._hits[request_id], num_tokens)
        self._hits[request_id] = hit
        return _ids(hit)

    def blocks_needed(self, request_id: str, demand: Demand) -> int:
        return self.manager.get_num_blocks_to_allocate(
            self._requests[request_id],
            demand.num_tokens,
            new_computed_blocks=self._hits[request_id] if demand.with_hit else None,
            total_computed_tokens=demand.total_computed_tokens,
            num_local_computed_tokens=demand.num_local_computed_tokens,
            apply_admission_cap=demand.apply_admission_cap,
        )

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

    def _hit_blocks(self, request_id: str, allocation: Allocation) -> _core.KVCacheBlocks | None:
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
        return self.manager.get_block_ids(request_id)

    def table_views(self, request_id: str, num_computed_tokens: int) -> TableViews:
        blocks = self.manager.get_blocks(request_id)
        every_other = range(0, len(blocks), 2)
        return TableViews(
            for_computed_tokens=self.manager.get_block_ids_for_computed_tokens(
                request_id, num_computed_tokens
            ),
            selected=blocks.get_block_ids(allow_none=True, group_ids=every_other),
            unhashed=blocks.get_unhashed_block_ids_all_groups(),
            as_arrays=tuple(ids.tolist() for ids in blocks.get_block_ids_numpy()),
            as_blocks=[[(b.block_id, b.ref_cnt, b.is_null) for b in g] for g in blocks.blocks],
            num_groups=len(blocks),
        )

    def estimate_cached_tokens(self, request_id: str) -> int:
        return self.manager.estimate_cached_tokens(self._requests[request_id])

    def num_common_prefix_blocks(self, request_id: str) -> list[int]:
        return self.manager.get_num_common_prefix_blocks(request_id)

    def evict(self, block_ids: list[int]) -> None:
        self.manager.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        return self.manager.reset_prefix_cache()

    def take_events(self) -> Events:
        return Events([_event(e) for e in self.manager.take_events()], [])

    def take_new_block_ids(self) -> list[int]:
        return self.manager.take_new_block_ids()

    def record_for_zeroing(self, request_id: str, start_token: int) -> None:
        self.manager.record_blocks_for_zeroing(request_id, start_token)

    def record_stats(self, request_id: str, num_hits: int) -> None:
        self.manager.record_prefix_cache_stats(self._requests[request_id], num_hits)

    def take_stats(self) -> dict[str, int] | None:
        stats = self.manager.make_prefix_cache_stats()
        return None if stats is None else {name: getattr(stats, name) for name in STATS_FIELDS}

    def start_step(self) -> None:
        self.manager.new_step_starts()

    def take_copies(self) -> Copies:
        copies, kept = self.manager.take_kv_cache_block_copies()
        if kept:
            self._copied.append(kept)
        pairs = [(copy.src_block_id, copy.dst_block_id) for copy in copies]
        return Copies(pairs, _block_ids(kept))

    def release_copied(self) -> None:
        self._pool.free_blocks(self._copied.popleft())

    def take_offloads(self) -> Offloads:
        return self.manager.take_boundary_state_offloads()

    def finalize_tails(self, request_id: str) -> list[tuple[int, int, int]]:
        return self.manager.finalize_partial_tail_offloads(self._requests[request_id])

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
        return self._pool.get_num_free_blocks()

    def state(self) -> PoolState:
        self.manager.check_invariants()
        blocks = list(self._pool.blocks)
        return PoolState(
            free_queue=self._pool.get_free_block_ids().tolist(),
            num_free_blocks=self._pool.get_num_free_blocks(),
            usage=self.manager.usage,
            ref_counts=[b.ref_cnt for b in blocks],
            block_hashes=[b.block_hash for b in blocks],
            block_hash_num_tokens=[b.block_hash_num_tokens for b in blocks],
        )

    def state_digest(self) -> bytes:
        return self.manager.state_digest()


def make_manager(scenario: Scenario) -> _core.KVCacheManager:
    config = _core.KVCacheConfig(
        scenario.num_blocks,
        [make_group(group) for group in scenario.groups],
        needs_kv_cache_zeroing=scenario.needs_zeroing,
    )
    return _core.KVCacheManager(
        config,
        scenario.max_model_len,
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
        policy=_core.Policy(retention_interval=scenario.retention_interval),
    )


def make_group(group: Group) -> _core.KVCacheGroupSpec:
    (kind,) = (kind for kind in _core.group_kinds() if kind.name == group.kind)
    sizes: dict[str, Any] = dict.fromkeys(kind.required_sizes, group.window)
    sizes |= dict.fromkeys(kind.optional_sizes, group.extra_retained_tokens)
    return _core.KVCacheGroupSpec(
        kind.name,
        group.block_size,
        is_eagle_group=group.is_eagle,
        prefix_cacheable=group.prefix_cacheable,
        layout=group.layout,
        **sizes,
    )


def _ids(blocks: _core.KVCacheBlocks) -> BlockIds:
    ids = blocks.get_block_ids()
    assert ids is not None
    return ids


def _block_ids(blocks: Iterable[_core.KVCacheBlock]) -> list[int]:
    return [block.block_id for block in blocks]


def _event(event: "_core.KVCacheEvent") -> Event:
    match event:
        case _core.BlockStored():
            return {
                "type": "stored",
                "block_hashes": event.block_hashes,
                "parent_block_hash": event.parent_block_hash,
                "token_ids": event.token_ids,
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
        case _core.BlockRemoved():
            return {
                "type": "removed",
                "block_hashes": event.block_hashes,
                "medium": event.medium,
                "group_idx": event.group_idx,
            }
        case _core.AllBlocksCleared():
            return {"type": "cleared"}
