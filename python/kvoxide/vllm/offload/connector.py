"""vLLM's ``OffloadingConnectorScheduler`` with shorter ways to the same decisions and state.

What is not here is vLLM's own method. Where the tier is kvoxide's, the keys of requests are in
Rust, and one call reads or stores many; any other manager gets vLLM's calls, in their number and
order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.utils import yield_req_data
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import TransferJob
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler as StockScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    TransferJobStatus,
    _ConnectorMetricName,
)
from vllm.utils.math_utils import cdiv
from vllm.v1.kv_offload.base import GPULoadStoreSpec, LookupResult, OffloadPolicy
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.request import RequestStatus

from kvoxide._core_vllm import VllmChunkKeys
from kvoxide.vllm.environment import logger, recognise_connector
from kvoxide.vllm.offload.attributes import ChunkKeySet, KeysBeingLoaded, joined
from kvoxide.vllm.offload.manager import CPUOffloadingManager
from kvoxide.vllm.offload.planner import (
    AllocatedBlocks,
    GroupLoad,
    LoadedRanges,
    Offer,
    blocks_of,
    extend_keys_faster,
    offers,
    plan_load,
    tokens_by_source,
)

_HIT: Final = LookupResult.HIT
_HIT_PENDING: Final = LookupResult.HIT_PENDING
_MISS: Final = LookupResult.MISS
_RETRY: Final = LookupResult.RETRY

# The attribute that vLLM replaces by a set after each step.
_ALLOCATED: Final = "_current_batch_allocated_block_ids"


class OffloadingConnectorScheduler(StockScheduler):  # type: ignore[misc]
    """The scheduler's side of vLLM's offloading connector."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments."""
        self._has_sync_loads = recognise_connector().release.has_sync_loads
        super().__init__(*args, **kwargs)
        if self._has_own_tier:
            self.manager.serve_connector()
            if self._chunks_being_loaded is not None:
                self._chunks_being_loaded: Any = KeysBeingLoaded(self.manager.tier)

    @property
    def _has_own_tier(self) -> bool:
        return type(self.manager) is CPUOffloadingManager

    @property
    def _keeps_keys(self) -> bool:
        """Whether nobody but the tier reads many of a request's keys."""
        return (
            self._has_own_tier
            and not self.config.supports_partial_tail
            and not self._events_tracker.self_describing_enabled
        )

    def on_new_request(self, request: Any) -> None:
        super().on_new_request(request)
        extend_keys_faster(self._req_status[request.request_id], self._keeps_keys)

    def _answers(self, keys: Iterable[Any], req_context: Any) -> Iterator[LookupResult]:
        """The manager's answers, each as it is asked for."""
        return map(self.manager.lookup, keys, repeat(req_context))

    def _lookup_complete_chunks(self, req_status: Any, *args: Any) -> int | None:
        loading = self._chunks_being_loaded
        if type(loading) is not KeysBeingLoaded:
            found: int | None = super()._lookup_complete_chunks(req_status, *args)
            return found
        self._chunks_being_loaded = None
        try:
            found = super()._lookup_complete_chunks(req_status, *args)
        finally:
            self._chunks_being_loaded = loading
        return None if found and loading and self._is_being_loaded(req_status, found) else found

    def _is_being_loaded(self, state: Any, num_tokens: int) -> bool:
        """Whether another request loads a chunk of a hit of ``num_tokens`` behind the local one."""
        start = state.num_locally_computed_tokens
        end = start + num_tokens
        for config, group in zip(self.config.kv_group_configs, state.group_states, strict=True):
            size = config.tokens_per_chunk
            keys = group.offload_keys[start // size : cdiv(end, size)]
            window = config.load_window_size_in_chunks(end)
            if window is not None:
                keys = keys[-window:]
            if self.manager.tier.is_any_loading(keys):
                return True
        return False

    def _maximal_prefix_lookup(
        self,
        keys: Iterable[Any],
        req_context: Any,
        req: Any,
        group_config: Any,
        start_chunk_idx: int,
    ) -> int | None:
        if self._events_tracker.self_describing_enabled:
            found: int | None = super()._maximal_prefix_lookup(
                keys, req_context, req, group_config, start_chunk_idx
            )
            return found
        if self._has_own_tier:
            return self.manager.tier.lookup_prefix(keys)  # type: ignore[no-any-return]
        num_hits, is_later = 0, False
        for answer in self._answers(keys, req_context):
            if answer is _HIT:
                num_hits += 1
            elif answer is _MISS:
                break
            elif answer is _HIT_PENDING:
                num_hits += 1
                is_later = True
            elif answer is _RETRY:
                is_later = True
        return None if is_later else num_hits

    def _sliding_window_lookup(
        self,
        keys: Sequence[Any],
        sliding_window_size: int,
        req_context: Any,
        initial_window_size: int | None = None,
    ) -> int | None:
        wanted = initial_window_size or sliding_window_size
        if self._has_own_tier:
            return self.manager.tier.lookup_window(  # type: ignore[no-any-return]
                keys, sliding_window_size, wanted
            )
        run, run_is_pending, is_later = 0, False, False
        answers = self._answers(reversed(keys), req_context)
        for at, answer in zip(range(len(keys) - 1, -1, -1), answers, strict=False):
            if answer is _HIT:
                run += 1
            elif answer is _HIT_PENDING:
                run += 1
                run_is_pending = True
            elif answer is _MISS or answer is _RETRY:
                run, run_is_pending, wanted = 0, False, sliding_window_size
                is_later = is_later or answer is _RETRY
            if run == wanted:
                return None if is_later or run_is_pending else at + wanted
        return None if is_later or run_is_pending else run

    def get_external_cache_hit_sources(
        self, request: Any, num_external_tokens: int
    ) -> dict[CacheHitSource, int]:
        if num_external_tokens <= 0:
            return {}
        state, manager = self._req_status[request.request_id], self.manager
        start = state.num_locally_computed_tokens
        end, ranges = start + num_external_tokens, state.load_key_ranges
        if self._has_own_tier:
            return tokens_by_source(getattr(ranges, "spans", ranges), start, end, None)
        return tokens_by_source(
            ranges, start, end, lambda key: manager.get_load_source(key, state.req_context)
        )

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens == 0:
            if self._has_sync_loads:
                self._allocated.note_table(blocks)
            return
        state = self._req_status[request.request_id]
        is_sync = self._has_sync_loads and request.request_id in self._current_batch_sync_loads
        loads = plan_load(self.config, state, blocks, num_external_tokens, is_sync)
        if loads is None:
            state.load_key_ranges = []
            super().update_state_after_alloc(request, blocks, num_external_tokens)
            return
        if self._has_sync_loads:
            self._allocated.note_table(blocks)
            self._acquire_step()
            state.loaded_from_offload = True
        else:
            self._note_allocated(blocks.get_block_ids())
        self._load(request.request_id, state, loads, is_sync)

    def _load(self, req_id: str, state: Any, loads: list[GroupLoad], is_sync: bool) -> None:
        state.load_key_ranges = LoadedRanges(loads)
        if state.offloading_context.policy == OffloadPolicy.CHUNK_LEVEL:
            for group_state, load in zip(state.group_states, loads, strict=True):
                group_state.next_stored_chunk_idx = load.num_chunks
        keys = joined([load.keys for load in loads])
        source = self.manager.prepare_load(keys, state.req_context)
        block_ids = np.concatenate([load.block_ids for load in loads])
        parts = [(len(load.block_ids), load.first_block) for load in loads]
        job_id = self._generate_job_id()
        self._current_batch_load_jobs[job_id] = TransferJob(
            req_id=req_id,
            src_spec=source,
            dst_spec=_gpu_spec(block_ids, parts),
            **_if_sync("sync", is_sync),
        )
        state.transfer_jobs.add(job_id)
        self._jobs[job_id] = TransferJobStatus(
            req_id=req_id,
            pending_count=self.config.num_workers,
            keys=self._key_set(keys),
            is_store=False,
            **_if_sync("is_sync_load", is_sync),
        )
        if self._chunks_being_loaded is not None and not is_sync:
            self._chunks_being_loaded.update(keys)
        state.partial_tail_boundary = None

    @staticmethod
    def _key_set(keys: Any) -> Any:
        return ChunkKeySet(keys) if type(keys) is VllmChunkKeys else set(keys)

    @property
    def _allocated(self) -> AllocatedBlocks:
        """The blocks that were allocated in this step."""
        noted = vars(self)[_ALLOCATED]
        if type(noted) is not AllocatedBlocks:
            noted = AllocatedBlocks(noted)
            setattr(self, _ALLOCATED, noted)
        return noted

    def _note_allocated(self, ids_of_groups: Sequence[list[int]]) -> None:
        for config in self.config.kv_group_configs:
            self._allocated.note(ids_of_groups[config.group_idx])

    def _update_req_states(self, scheduler_output: Any) -> None:
        windowed = self._sliding_window_groups
        num_before: dict[str, tuple[int, ...]] = {}
        states = self._req_status
        for req_id, ids_of_groups, is_full_table in yield_req_data(scheduler_output):
            state = states[req_id]
            state.update_offload_keys()
            if is_full_table:
                for group_state in state.group_states:
                    group_state.block_ids.clear()
            if ids_of_groups:
                if windowed:
                    groups = state.group_states
                    num_before[req_id] = tuple(len(groups[at].block_ids) for at in windowed)
                state.update_block_id_groups(ids_of_groups)
                self._note_allocated(ids_of_groups)
        self._allocated.update(
            copy.dst_block_id for copy in scheduler_output.kv_cache_block_copies or ()
        )
        self._allocated.watch(self._block_id_to_pending_jobs)
        if windowed and self._allocated:
            # Blocks that left a window before they were stored may be another request's by now.
            size = self.config.blocks_per_chunk
            self._allocated.ids.forget_in(self._req_status, windowed, size, num_before)

    def _build_store_jobs(self, scheduler_output: Any) -> dict[int, TransferJob]:
        jobs: dict[int, TransferJob] = {}
        scheduled = scheduler_output.num_scheduled_tokens
        sizes = [config.tokens_per_chunk for config in self.config.kv_group_configs]
        only_prompts = self.config.offload_prompt_only
        # An id that ended may be another request's already.
        for req_id in chain(scheduled, scheduler_output.finished_req_ids or ()):
            state = self._req_status.get(req_id)
            if state is None:
                continue
            req, num_new = state.req, scheduled.get(req_id)
            if num_new is not None and req.status is RequestStatus.RUNNING:
                num_tokens = req.num_computed_tokens + num_new
                # Most requests decode and have nothing to store, which is told without a call.
                most = req.num_prompt_tokens if only_prompts else num_tokens
                for size, group in zip(sizes, state.group_states, strict=False):
                    if most // size > group.next_stored_chunk_idx:
                        break
                else:
                    continue
            self._store(state, _num_computed(req, scheduled), jobs)
        return jobs

    @property
    def _stores_plainly(self) -> bool:
        """Whether chunks are blocks, and stores need no payload of an event."""
        return (
            self.config.blocks_per_chunk == 1 and not self._events_tracker.self_describing_enabled
        )

    def _vllms_store_jobs(self, req: Any, num_computed: int) -> dict[int, TransferJob]:
        scheduled = {req.request_id: num_computed - req.num_computed_tokens}
        only = SimpleNamespace(num_scheduled_tokens=scheduled, finished_req_ids=())
        jobs: dict[int, TransferJob] = super()._build_store_jobs(only)
        return jobs

    def _store(self, state: Any, num_computed: int, jobs: dict[int, TransferJob]) -> None:
        """Add the job of a request's chunks to ``jobs``, if they are to be stored."""
        num_tokens = self._calc_num_offloadable_tokens(state, num_computed)
        if not (state.req.is_finished() or self._has_more(state, num_tokens)):
            return
        offered = None
        if self._stores_plainly and all(self._jobs[job].is_store for job in state.transfer_jobs):
            num_prompt_tokens = state.req.num_prompt_tokens
            num_prompt_tokens = self._calc_num_offloadable_tokens(state, num_prompt_tokens)
            offered = offers(self, state, num_tokens, num_prompt_tokens)
        if offered is None:
            jobs |= self._vllms_store_jobs(state.req, num_computed)
            return
        wanted = joined([offer.wanted for offer in offered])
        if len(wanted):
            output = self.manager.prepare_store(wanted, state.req_context)
            if output is None:
                self._connector_stats.increase_counter(_ConnectorMetricName.ALLOCATION_FAILURE)
                name = state.req.request_id
                logger.warning("the host tier has no room for chunks of request %s", name)
                return
            if len(output.keys_to_store):
                job_id = self._generate_job_id()
                jobs[job_id] = self._store_job(job_id, state, offered, output)
                return
        state.advance_stored_idx(num_tokens)

    def _store_job(self, job_id: int, state: Any, offered: list[Offer], output: Any) -> TransferJob:
        parts = blocks_of(offered, output.keys_to_store)
        watched: list[int] = []
        at_end: list[int] = []
        for offer, (block_ids, _) in zip(offered, parts, strict=True):
            is_window = offer.config.sliding_window_size_in_chunks is not None
            (watched if is_window else at_end).extend(block_ids)
            group = offer.state
            group.next_stored_chunk_idx = max(group.next_stored_chunk_idx, offer.end)
        self._watch(job_id, watched)
        if state.req.is_finished():
            self._watch(job_id, at_end)
            if any(block_id in self._allocated for block_id in at_end):
                self._current_batch_jobs_to_flush.add(job_id)
        state.transfer_jobs.add(job_id)
        self._jobs[job_id] = TransferJobStatus(
            req_id=state.req.request_id,
            pending_count=self.config.num_workers,
            keys=self._stored_key_set(output.keys_to_store),
            is_store=True,
            deferred_fence_block_ids=at_end,
            fenced_block_ids=watched or None,
        )
        all_ids = list(chain.from_iterable(block_ids for block_ids, _ in parts))
        sizes = [(len(block_ids), first) for block_ids, first in parts]
        return TransferJob(
            req_id=state.req.request_id,
            src_spec=_gpu_spec(all_ids, sizes),
            dst_spec=output.store_spec,
        )

    def _stored_key_set(self, keys: Any) -> Any:
        # The event of a store tells its keys in the order of a set's copy.
        has_order = getattr(self.manager, "keeps_events", True)
        return set(keys).copy() if has_order else self._key_set(keys)

    def _watch(self, job_id: int, block_ids: Iterable[int]) -> None:
        for block_id in block_ids:
            self._block_id_to_pending_jobs.setdefault(block_id, set()).add(job_id)

    def _has_more(self, state: Any, num_tokens: int) -> bool:
        """Whether a request has a chunk behind those that it offered."""
        return any(
            num_tokens // config.tokens_per_chunk > group.next_stored_chunk_idx
            for config, group in zip(self.config.kv_group_configs, state.group_states, strict=True)
        )


def _num_computed(req: Any, scheduled: Mapping[str, int]) -> int:
    """Returns how many tokens of a request the GPU has after the step."""
    if req.status is RequestStatus.FINISHED_ABORTED:
        return int(req.num_computed_tokens)
    if req.is_finished():
        # The last sampled token was never computed.
        return int(max(req.num_prompt_tokens, req.num_tokens - 1))
    return int(req.num_computed_tokens) + scheduled[req.request_id]


def _gpu_spec(block_ids: Any, parts: Sequence[tuple[int, int]]) -> GPULoadStoreSpec:
    """Returns the blocks of all groups; of each, how many they are and the place of the first."""
    return GPULoadStoreSpec(
        block_ids,
        group_sizes=[num_blocks for num_blocks, _ in parts],
        block_indices=[first for _, first in parts],
    )


def _if_sync(name: str, is_sync: bool) -> dict[str, bool]:
    # Not every release has the argument.
    return {name: True} if is_sync else {}
