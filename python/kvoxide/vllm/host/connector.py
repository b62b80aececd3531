"""vLLM's ``OffloadingConnectorScheduler`` with shorter ways to the same decisions and state.

What is not here is vLLM's own method. Where the tier is kvoxide's, answers are read from it; any
other manager gets vLLM's calls, in their number and order.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from types import SimpleNamespace
from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.utils import yield_req_data
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import TransferJob
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler as StockScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    RequestOffloadState,
    TransferJobStatus,
    _ConnectorMetricName,
)
from vllm.v1.kv_offload.base import GPULoadStoreSpec, LookupResult, OffloadPolicy
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvoxide.vllm.environment import logger, recognise_connector
from kvoxide.vllm.host.loads import GroupLoad, flat, plan_load
from kvoxide.vllm.host.manager import ANSWERS, CPUOffloadingManager
from kvoxide.vllm.host.sources import tokens_by_source
from kvoxide.vllm.host.stores import Offer, offers

_HIT: Final = LookupResult.HIT
_HIT_PENDING: Final = LookupResult.HIT_PENDING
_MISS: Final = LookupResult.MISS
_RETRY: Final = LookupResult.RETRY

# Which blocks of a group are known to be gone, from one to before the other.
_GONE: Final = "_kvoxide_gone"


class RequestState(RequestOffloadState):  # type: ignore[misc]
    """What the connector knows of a request. The step's new hashes alone cost time."""

    __slots__ = ()

    def update_offload_keys(self) -> None:
        hashes = self.req.block_hashes
        if type(hashes) is not list:
            super().update_offload_keys()
            return
        num_hashes = len(hashes)
        for config, state in zip(self.config.kv_group_configs, self.group_states, strict=False):
            keys, hashes_per_chunk = state.offload_keys, config.hashes_per_chunk
            end = (len(keys) + 1) * hashes_per_chunk
            if end > num_hashes:
                continue
            group = config.group_idx.to_bytes(4, "big")
            new = [block_hash + group for block_hash in hashes[end - 1 :: hashes_per_chunk]]
            size, num_known = config.tokens_per_chunk, len(keys) + 1
            ends = range(num_known * size, (num_known + len(new)) * size, size)
            self.req_context._offload_key_positions.update(zip(new, ends, strict=True))
            keys += new


class OffloadingConnectorScheduler(StockScheduler):  # type: ignore[misc]
    """The scheduler's side of vLLM's offloading connector."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments."""
        self._has_sync_loads = recognise_connector().release.has_sync_loads
        super().__init__(*args, **kwargs)

    def on_new_request(self, request: Any) -> None:
        super().on_new_request(request)
        state = self._req_status[request.request_id]
        if type(state) is RequestOffloadState:
            state.__class__ = RequestState

    def _answers(self, keys: Iterable[Any], req_context: Any) -> Iterator[LookupResult]:
        """The manager's answers, each as it is asked for."""
        if type(self.manager) is CPUOffloadingManager:
            return map(ANSWERS.__getitem__, map(self.manager.tier.lookup, keys))
        return map(self.manager.lookup, keys, repeat(req_context))

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
        is_ours = type(manager) is CPUOffloadingManager
        return tokens_by_source(
            state.load_key_ranges,
            start,
            start + num_external_tokens,
            None if is_ours else lambda key: manager.get_load_source(key, state.req_context),
        )

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens == 0:
            if self._has_sync_loads:
                self._note_allocated(blocks.get_block_ids())
            return
        state, ids = self._req_status[request.request_id], blocks.get_block_ids()
        loads = None
        if not (self._has_sync_loads and request.request_id in self._current_batch_sync_loads):
            loads = plan_load(self.config, state, blocks.blocks, ids, num_external_tokens)
        if loads is None:
            super().update_state_after_alloc(request, blocks, num_external_tokens)
            return
        if self._has_sync_loads:
            self._note_allocated(ids)
            self._acquire_step()
            state.loaded_from_offload = True
        else:
            self._note_allocated(ids[config.group_idx] for config in self.config.kv_group_configs)
        self._load(request.request_id, state, loads)

    def _load(self, req_id: str, state: Any, loads: list[GroupLoad]) -> None:
        state.load_key_ranges[:] = flat(load.ranges for load in loads)
        if state.offloading_context.policy == OffloadPolicy.CHUNK_LEVEL:
            for group_state, load in zip(state.group_states, loads, strict=True):
                group_state.next_stored_chunk_idx = load.num_chunks
        keys = flat(load.keys for load in loads)
        job_id, job = self._generate_job_id(), self._load_job(req_id, state, keys, loads)
        self._current_batch_load_jobs[job_id] = job
        state.transfer_jobs.add(job_id)
        self._jobs[job_id] = TransferJobStatus(
            req_id=req_id, pending_count=self.config.num_workers, keys=set(keys), is_store=False
        )
        if self._chunks_being_loaded is not None:
            self._chunks_being_loaded.update(keys)
        state.partial_tail_boundary = None

    def _load_job(
        self, req_id: str, state: Any, keys: list[bytes], loads: list[GroupLoad]
    ) -> TransferJob:
        return TransferJob(
            req_id=req_id,
            src_spec=self.manager.prepare_load(keys, state.req_context),
            dst_spec=GPULoadStoreSpec(
                flat(load.block_ids for load in loads),
                group_sizes=[len(load.block_ids) for load in loads],
                block_indices=[load.first_block for load in loads],
            ),
        )

    def _note_allocated(self, ids_of_groups: Iterable[Iterable[int]]) -> None:
        for ids in ids_of_groups:
            self._current_batch_allocated_block_ids.update(filter(None, ids))

    def _update_req_states(self, scheduler_output: Any) -> None:
        windowed = self._sliding_window_groups
        num_before: dict[str, tuple[int, ...]] = {}
        for req_id, ids_of_groups, is_full_table in yield_req_data(scheduler_output):
            state = self._req_status[req_id]
            state.update_offload_keys()
            if is_full_table:
                for group_state in state.group_states:
                    group_state.block_ids.clear()
            if ids_of_groups:
                if windowed:
                    groups = state.group_states
                    num_before[req_id] = tuple(len(groups[at].block_ids) for at in windowed)
                state.update_block_id_groups(ids_of_groups)
                self._note_allocated(
                    ids_of_groups[config.group_idx] for config in self.config.kv_group_configs
                )
        self._current_batch_allocated_block_ids.update(
            copy.dst_block_id for copy in scheduler_output.kv_cache_block_copies or ()
        )
        if windowed and self._current_batch_allocated_block_ids:
            for req_id, state in self._req_status.items():
                self._forget_reused_blocks(state, num_before.get(req_id))

    def _forget_reused_blocks(self, state: Any, ends: tuple[int, ...] | None) -> None:
        """Blocks that left a window before they were stored may be another request's by now."""
        reused = self._current_batch_allocated_block_ids
        for at, group in enumerate(self._sliding_window_groups):
            group_state = state.group_states[group]
            ids = group_state.block_ids
            start = group_state.next_stored_chunk_idx * self.config.blocks_per_chunk
            end = len(ids) if ends is None else ends[at]
            first = _first_to_look_at(group_state, start, end)
            if first < end and not reused.isdisjoint(ids[first:end]):
                ids[first:end] = [0 if i in reused else i for i in ids[first:end]]

    def _build_store_jobs(self, scheduler_output: Any) -> dict[int, TransferJob]:
        finished = scheduler_output.finished_req_ids or ()
        # An id that ended may be another request's already.
        scheduled = {
            req_id: num_tokens
            for req_id, num_tokens in scheduler_output.num_scheduled_tokens.items()
            if self._may_store(req_id, num_tokens) or req_id in finished
        }
        jobs: dict[int, TransferJob] = {}
        if self._stores_plainly and scheduled.keys().isdisjoint(finished):
            for req_id, num_tokens in scheduled.items():
                self._store(req_id, num_tokens, jobs)
            scheduled = {}
        if scheduled or finished:
            jobs |= self._vllms_store_jobs(scheduled, finished)
        return jobs

    @property
    def _stores_plainly(self) -> bool:
        """Whether chunks are blocks, and stores need no payload of an event."""
        return (
            self.config.blocks_per_chunk == 1 and not self._events_tracker.self_describing_enabled
        )

    def _vllms_store_jobs(self, scheduled: dict[str, int], finished: Any) -> dict[int, TransferJob]:
        only = SimpleNamespace(num_scheduled_tokens=scheduled, finished_req_ids=finished)
        jobs: dict[int, TransferJob] = super()._build_store_jobs(only)
        return jobs

    def _store(self, req_id: str, num_scheduled: int, jobs: dict[int, TransferJob]) -> None:
        """Add the job of a request's chunks to ``jobs``, if they are to be stored."""
        state = self._req_status[req_id]
        req = state.req
        if req.is_finished() or not all(self._jobs[job].is_store for job in state.transfer_jobs):
            jobs |= self._vllms_store_jobs({req_id: num_scheduled}, ())
            return
        num_tokens, num_prompt_tokens = (
            self._calc_num_offloadable_tokens(state, computed)
            for computed in (req.num_computed_tokens + num_scheduled, req.num_prompt_tokens)
        )
        offered = offers(self, state, num_tokens, num_prompt_tokens)
        wanted = flat(offer.wanted for offer in offered)
        if wanted:
            output = self.manager.prepare_store(wanted, state.req_context)
            if output is None:
                self._connector_stats.increase_counter(_ConnectorMetricName.ALLOCATION_FAILURE)
                logger.warning("the host tier has no room for chunks of request %s", req_id)
                return
            if output.keys_to_store:
                job_id = self._generate_job_id()
                jobs[job_id] = self._store_job(job_id, state, offered, output)
                return
        state.advance_stored_idx(num_tokens)

    def _store_job(self, job_id: int, state: Any, offered: list[Offer], output: Any) -> TransferJob:
        accepted = set(output.keys_to_store)
        parts = [offer.blocks_of(accepted) for offer in offered]
        watched: list[int] = []
        at_end: list[int] = []
        for offer, (block_ids, _) in zip(offered, parts, strict=True):
            is_window = offer.config.sliding_window_size_in_chunks is not None
            (watched if is_window else at_end).extend(block_ids)
            group = offer.state
            group.next_stored_chunk_idx = max(group.next_stored_chunk_idx, offer.end)
        for block_id in watched:
            self._block_id_to_pending_jobs.setdefault(block_id, set()).add(job_id)
        state.transfer_jobs.add(job_id)
        self._jobs[job_id] = TransferJobStatus(
            req_id=state.req.request_id,
            pending_count=self.config.num_workers,
            keys=accepted,
            is_store=True,
            deferred_fence_block_ids=at_end,
            fenced_block_ids=watched or None,
        )
        source = GPULoadStoreSpec(
            flat(block_ids for block_ids, _ in parts),
            group_sizes=[len(block_ids) for block_ids, _ in parts],
            block_indices=[first for _, first in parts],
        )
        return TransferJob(req_id=state.req.request_id, src_spec=source, dst_spec=output.store_spec)

    def _may_store(self, req_id: str, num_scheduled_tokens: int) -> bool:
        """Whether a request has a chunk behind those that it offered, or has ended."""
        state = self._req_status.get(req_id)
        if state is None:
            return False
        req = state.req
        if req.is_finished():
            return True
        num_tokens = self._calc_num_offloadable_tokens(
            state, req.num_computed_tokens + num_scheduled_tokens
        )
        for config, group in zip(self.config.kv_group_configs, state.group_states, strict=True):
            if num_tokens // config.tokens_per_chunk > group.next_stored_chunk_idx:
                return True
        return False


def _first_to_look_at(group_state: Any, start: int, end: int) -> int:
    """Returns the first block from ``start`` to ``end`` that is there. What is gone stays so until
    vLLM empties the list, and is not looked at again."""
    ids = group_state.block_ids
    first: int
    gone_from, first = vars(group_state).get(_GONE, (0, 0))
    if not gone_from <= start <= first <= end:
        gone_from = first = start
    while first < end and not ids[first]:
        first += 1
    setattr(group_state, _GONE, (gone_from, first))
    return first
