"""vLLM's ``OffloadingConnectorScheduler`` with shorter ways to the same decisions and state.

All other methods are inherited from vLLM. Where the tier is kvoxide's, the keys of requests are in
Rust, and one call looks up, loads or stores many. Any other manager gets vLLM's calls, in their
number and order. ``_maximal_prefix_lookup()`` and ``_sliding_window_lookup()`` are called only
then, or if events describe themselves.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.utils import yield_req_data
from vllm.v1.kv_offload.base import LookupResult
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvoxide.vllm.offload.attributes import KeysBeingLoaded
from kvoxide.vllm.offload.leaving import LeavingJobs
from kvoxide.vllm.offload.planner import Planner, prefix_hits, tokens_by_source, window_hits


class OffloadingConnectorScheduler(LeavingJobs):
    """The scheduler's side of vLLM's offloading connector."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments."""
        super().__init__(*args, **kwargs)
        self._planner = Planner(self)
        if self._planner.has_own_tier:
            self.manager.serve_connector(self._planner.end)
        if self._planner.looks_up:
            # In place of vLLM's method, which would call one of this class for each group.
            self._lookup_complete_chunks = self._planner.look_up
            if self._chunks_being_loaded is not None:
                self._chunks_being_loaded: Any = KeysBeingLoaded(self.manager.tier)

    def on_new_request(self, request: Any) -> None:
        super().on_new_request(request)
        self._planner.start(self._req_status[request.request_id])

    def _answers(self, keys: Iterable[Any], req_context: Any) -> Iterator[LookupResult]:
        """Return the manager's answers, each as it is asked for."""
        return map(self.manager.lookup, keys, repeat(req_context))

    def _maximal_prefix_lookup(self, keys: Any, req_context: Any, *place: Any) -> int | None:
        if self._events_tracker.self_describing_enabled:
            found: int | None = super()._maximal_prefix_lookup(keys, req_context, *place)
            return found
        return prefix_hits(self._answers(keys, req_context))

    def _sliding_window_lookup(
        self, keys: Any, size: int, req_context: Any, initial: int | None = None
    ) -> int | None:
        answers = self._answers(reversed(keys), req_context)
        return window_hits(answers, len(keys), size, initial or size)

    def get_external_cache_hit_sources(
        self, request: Any, num_external_tokens: int
    ) -> dict[CacheHitSource, int]:
        if num_external_tokens <= 0:
            return {}
        state, manager = self._req_status[request.request_id], self.manager
        start = state.num_locally_computed_tokens
        end, ranges = start + num_external_tokens, state.load_key_ranges
        if self._planner.has_own_tier:
            return tokens_by_source(getattr(ranges, "spans", ranges), start, end, None)
        return tokens_by_source(
            ranges, start, end, lambda key: manager.get_load_source(key, state.req_context)
        )

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if self._planner.has_sync_loads:
            self._allocated.note_table(blocks)
        if num_external_tokens == 0:
            if self._still_decides_together():
                self._planner.note_used(blocks)
            return
        state, is_sync = self._req_status[request.request_id], False
        if self._planner.has_sync_loads:
            self._acquire_step()
            is_sync = request.request_id in self._current_batch_sync_loads
        plan = self._planner.load(state, blocks, num_external_tokens, is_sync)
        if plan is None:
            state.load_key_ranges = []
            super().update_state_after_alloc(request, blocks, num_external_tokens)
            return
        if self._planner.has_sync_loads:
            state.loaded_from_offload = True
        else:
            self._note_allocated([blocks.get_block_ids()])
        self._load(request.request_id, state, plan, {"sync": True} if is_sync else {})

    def _note_allocated(self, of_requests: Iterable[Sequence[list[int]]]) -> None:
        groups = [config.group_idx for config in self.config.kv_group_configs]
        new = [ids_of_groups[at] for ids_of_groups in of_requests for at in groups]
        new = [block_ids for block_ids in new if block_ids]
        if new:
            self._allocated.note(new[0] if len(new) == 1 else list(chain.from_iterable(new)))

    def _update_req_states(self, scheduler_output: Any) -> None:
        windowed = self._sliding_window_groups
        num_before: dict[str, tuple[int, ...]] = {}
        new: list[Sequence[list[int]]] = []
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
                new.append(ids_of_groups)
        self._note_allocated(new)
        if copies := scheduler_output.kv_cache_block_copies:
            self._allocated.update(copy.dst_block_id for copy in copies)
        self._allocated.watch(self._block_id_to_pending_jobs)
        if windowed and self._allocated:
            # Blocks that left a window before they were stored may be another request's by now.
            size = self.config.blocks_per_chunk
            self._allocated.ids.forget_in(self._req_status, windowed, size, num_before)
