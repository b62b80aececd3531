"""Transfer jobs: the orders to load and store that workers get from the scheduler's side."""

from collections.abc import Iterable
from itertools import chain
from types import SimpleNamespace
from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import TransferJob
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler as StockScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    TransferJobStatus,
    _ConnectorMetricName,
)
from vllm.v1.kv_offload.base import OffloadPolicy
from vllm.v1.request import RequestStatus

from kvoxide._core_vllm import OffloadLoadPlan
from kvoxide.vllm.environment import logger
from kvoxide.vllm.offload.attributes import AllocatedBlocks, ChunkKeySet, LoadedRanges
from kvoxide.vllm.offload.planner import Offer, Planner, Stored, gpu_spec, num_computed_after

# The attribute that vLLM replaces by a set after each step.
_ALLOCATED: Final = "_current_batch_allocated_block_ids"


class TransferJobs(StockScheduler):  # type: ignore[misc]
    """Makes jobs of plans, and keeps what vLLM's methods read of them."""

    _planner: Planner

    @property
    def _allocated(self) -> AllocatedBlocks:
        """The blocks that were allocated in this step."""
        noted = vars(self)[_ALLOCATED]
        if type(noted) is not AllocatedBlocks:
            noted = AllocatedBlocks(noted)
            setattr(self, _ALLOCATED, noted)
        return noted

    def _load(self, req_id: str, state: Any, plan: OffloadLoadPlan, sync: dict[str, bool]) -> None:
        state.load_key_ranges = LoadedRanges(self.config.kv_group_configs, plan.parts)
        if state.offloading_context.policy == OffloadPolicy.CHUNK_LEVEL:
            for group_state, num_chunks in zip(state.group_states, plan.num_chunks, strict=True):
                group_state.next_stored_chunk_idx = num_chunks
        source = self._planner.source(plan, state)
        job_id = self._generate_job_id()
        target = gpu_spec(plan.block_ids, plan.group_sizes, plan.block_indices)
        self._current_batch_load_jobs[job_id] = TransferJob(req_id, source, target, **sync)
        # Not every release has the argument.
        is_sync = {"is_sync_load": True} if sync else {}
        keys = ChunkKeySet.of(plan.keys)
        self._add_job(job_id, state, keys=keys, is_store=False, **is_sync)
        if plan.chunk_ids is None and self._chunks_being_loaded is not None and not sync:
            self._chunks_being_loaded.update(plan.keys)
        state.partial_tail_boundary = None

    def _add_job(self, job_id: int, state: Any, **fields: Any) -> None:
        state.transfer_jobs.add(job_id)
        self._jobs[job_id] = TransferJobStatus(
            req_id=state.req.request_id, pending_count=self.config.num_workers, **fields
        )

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
                # Most requests decode and have nothing to store, which needs no call to see.
                most = req.num_prompt_tokens if only_prompts else num_tokens
                for size, group in zip(sizes, state.group_states, strict=False):
                    if most // size > group.next_stored_chunk_idx:
                        break
                else:
                    continue
            self._store(state, num_computed_after(req, scheduled), jobs)
        return jobs

    def _store(self, state: Any, num_computed: int, jobs: dict[int, TransferJob]) -> None:
        """Add the job of a request's chunks to ``jobs``, if they are to be stored."""
        num_tokens = self._calc_num_offloadable_tokens(state, num_computed)
        groups = zip(self.config.kv_group_configs, state.group_states, strict=True)
        if not state.req.is_finished() and not any(
            num_tokens // config.tokens_per_chunk > group.next_stored_chunk_idx
            for config, group in groups
        ):
            return
        offered = self._offers(state, num_tokens)
        if offered is None:
            scheduled = {state.req.request_id: num_computed - state.req.num_computed_tokens}
            only = SimpleNamespace(num_scheduled_tokens=scheduled, finished_req_ids=())
            jobs |= super()._build_store_jobs(only)
            return
        stored = self._planner.store(state, offered)
        if stored is None:
            self._connector_stats.increase_counter(_ConnectorMetricName.ALLOCATION_FAILURE)
            name = state.req.request_id
            logger.warning(
                "kvoxide: the CPU offload cache has no free space, because running transfers use "
                "all of it. Request %s continues, but its new blocks are not stored there. Raise "
                "--kv-offloading-size if this is frequent.",
                name,
            )
        elif len(stored.keys):
            job_id = self._generate_job_id()
            jobs[job_id] = self._store_job(job_id, state, offered, stored)
        else:
            state.advance_stored_idx(num_tokens)

    def _offers(self, state: Any, num_tokens: int) -> list[Offer] | None:
        """Return what a request offers; None for what vLLM's own method has to find."""
        is_plain = (
            self.config.blocks_per_chunk == 1 and not self._events_tracker.self_describing_enabled
        )
        if not is_plain or not all(self._jobs[job].is_store for job in state.transfer_jobs):
            return None
        num_prompt_tokens = state.req.num_prompt_tokens
        num_prompt_tokens = self._calc_num_offloadable_tokens(state, num_prompt_tokens)
        return self._planner.offers(state, num_tokens, num_prompt_tokens)

    def _store_job(
        self, job_id: int, state: Any, offered: list[Offer], stored: Stored
    ) -> TransferJob:
        watched: list[int] = []
        at_end: list[int] = []
        for offer, (block_ids, _) in zip(offered, stored.parts, strict=True):
            is_window = offer.config.sliding_window_size_in_chunks is not None
            (watched if is_window else at_end).extend(block_ids)
            group = offer.state
            group.next_stored_chunk_idx = max(group.next_stored_chunk_idx, offer.end)
        self._watch(job_id, watched)
        if state.req.is_finished():
            self._watch(job_id, at_end)
            if any(block_id in self._allocated for block_id in at_end):
                self._current_batch_jobs_to_flush.add(job_id)
        # The event of a store has its keys in the order of a set's copy.
        has_order = getattr(self.manager, "keeps_events", True)
        self._add_job(
            job_id,
            state,
            keys=set(stored.keys).copy() if has_order else ChunkKeySet.of(stored.keys),
            is_store=True,
            deferred_fence_block_ids=at_end,
            fenced_block_ids=watched or None,
        )
        all_ids = list(chain.from_iterable(block_ids for block_ids, _ in stored.parts))
        sizes = [len(block_ids) for block_ids, _ in stored.parts]
        source = gpu_spec(all_ids, sizes, [first for _, first in stored.parts])
        return TransferJob(state.req.request_id, source, stored.spec)

    def _watch(self, job_id: int, block_ids: Iterable[int]) -> None:
        for block_id in block_ids:
            self._block_id_to_pending_jobs.setdefault(block_id, set()).add(job_id)
