"""Errors in vLLM's offloading connector. Each omits something that is easily omitted. The
comparison of ``tests/proof/connector`` has to find all of them. They are planted in classes that
only its first side has."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any

from vllm.v1.kv_cache_interface import RSWASpec
from vllm.v1.kv_offload.base import OffloadPolicy

from ..connector.world import VllmsConnector as Connector
from ..connector.world import VllmsTier as Tier
from .fault import Faults, Plant

lookups = Faults("connector, look-ups")
loads = Faults("connector, loads")
stores = Faults("connector, stores")
ends = Faults("connector, jobs and ends")


@lookups
def later_keeps_cursors(plant: Plant) -> None:
    def ask(original: Any, self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if self._req_status[request.request_id].transfer_jobs:
            return None, False
        return original(self, request, *args, **kwargs)

    plant.around(Connector, "get_num_new_matched_tokens", ask)


@lookups
def pending_chunks_end_a_prefix(plant: Plant) -> None:
    def look_up(original: Any, self: Any, keys: Any, context: Any, *args: Any) -> Any:
        answers = [self.manager.lookup(key, context).name for key in keys]
        end = answers.index("HIT_PENDING") if "HIT_PENDING" in answers else len(keys)
        return original(self, keys[:end], context, *args)

    plant.around(Connector, "_maximal_prefix_lookup", look_up)


def _note_later(plant: Plant, change: Any) -> None:
    """Pass the answer to ``change`` if a group said "later" on the way to it."""
    said: list[Any] = []

    def of_group(original: Any, *args: Any, **kwargs: Any) -> Any:
        said.append(original(*args, **kwargs))
        return said[-1]

    def of_all(original: Any, *args: Any, **kwargs: Any) -> Any:
        said.clear()
        answer = original(*args, **kwargs)
        return change(answer) if None in said else answer

    plant.around(Connector, "_maximal_prefix_lookup", of_group)
    plant.around(Connector, "_sliding_window_lookup", of_group)
    plant.around(Connector, "_lookup_complete_chunks", of_all)


@lookups
def later_outlives_a_shorter_hit(plant: Plant) -> None:
    _note_later(plant, lambda answer: None if answer else answer)


@lookups
def later_wins_over_no_hit(plant: Plant) -> None:
    _note_later(plant, lambda answer: None if answer == 0 else answer)


@lookups
def last_token_is_always_computed(plant: Plant) -> None:
    def look_up(original: Any, self: Any, state: Any, most: int | None = None) -> Any:
        rest = state.req.num_tokens - state.num_locally_computed_tokens - 1
        return original(self, state, rest if most is None else min(most, rest))

    plant.around(Connector, "_lookup_complete_chunks", look_up)


@lookups
def last_token_is_never_computed(plant: Plant) -> None:
    def look_up(original: Any, self: Any, state: Any, *args: Any) -> Any:
        state.req._all_token_ids.append(0)
        try:
            return original(self, state, *args)
        finally:
            state.req._all_token_ids.pop()

    plant.around(Connector, "_lookup_complete_chunks", look_up)


@lookups
def short_runs_at_the_start_are_misses(plant: Plant) -> None:
    def look_up(original: Any, self: Any, keys: Any, window: int, *args: Any) -> Any:
        found = original(self, keys, window, *args)
        return 0 if found and found < window else found

    plant.around(Connector, "_sliding_window_lookup", look_up)


@lookups
def smallest_window_first(plant: Plant) -> None:
    def change(self: Any) -> None:
        self._sliding_window_groups = self._sliding_window_groups[::-1]
        self._lookup_groups = self._full_attention_groups + self._sliding_window_groups

    plant.after_init(Connector, change)


@lookups
def loads_within_a_step_leave_others_being_loaded(plant: Plant) -> None:
    def update(original: Any, self: Any, output: Any) -> None:
        report, loading = output.kv_connector_worker_meta, self._chunks_being_loaded or set()
        jobs = [self._jobs.get(job_id) for job_id in (report.completed_jobs if report else ())]
        keys = set().union(*(job.keys for job in jobs if job and job.is_sync_load)) & loading
        original(self, output)
        loading |= keys

    plant.around(Connector, "_update_connector_output", update)


@lookups
def loads_are_waited_for_without_prefix_caching(plant: Plant) -> None:
    def change(self: Any) -> None:
        if self._chunks_being_loaded is None:
            self._chunks_being_loaded = set()

    plant.after_init(Connector, change)


@lookups
def boundary_keys_have_no_position(plant: Plant) -> None:
    def make(original: Any, self: Any, request: Any, group: int, tokens: int, context: Any) -> Any:
        return original(self, request, group, tokens, SimpleNamespace(
            set_offload_key_position=lambda *_: None
        ))  # fmt: skip

    plant.around(Connector, "_make_boundary_key", make)


@lookups
def rswa_is_a_window(plant: Plant) -> None:
    def change(self: Any) -> None:
        groups = self.config.kv_group_configs
        if not any(isinstance(group.kv_cache_spec, RSWASpec) for group in groups):
            return
        groups = tuple(group._replace(sliding_window_size_in_chunks=3) for group in groups)
        self.config = self.config._replace(kv_group_configs=groups)
        self._sliding_window_groups, self._full_attention_groups = self._full_attention_groups, ()

    plant.after_init(Connector, change)


def _with_nulls(plant: Plant, is_null: Any) -> None:
    def load(original: Any, self: Any, request: Any, blocks: Any, num_tokens: int) -> Any:
        seen = [
            [
                SimpleNamespace(
                    block_id=block.block_id, block_hash=block.block_hash, is_null=is_null(block)
                )
                for block in group
            ]
            for group in blocks.blocks
        ]
        return original(self, request, SimpleNamespace(blocks=seen), num_tokens)

    plant.around(Connector, "update_state_after_alloc", load)


@loads
def hashed_blocks_are_never_loaded(plant: Plant) -> None:
    _with_nulls(plant, lambda block: block.is_null or block.block_hash is not None)


@loads
def null_blocks_are_loaded(plant: Plant) -> None:
    _with_nulls(plant, lambda _: False)


@loads
def cursors_of_groups_without_blocks_stay(plant: Plant) -> None:
    def load(original: Any, self: Any, request: Any, blocks: Any, num_tokens: int) -> Any:
        before = self._job_counter
        original(self, request, blocks, num_tokens)
        if self._job_counter == before:
            return
        sizes = self._current_batch_load_jobs[before].dst_spec.group_sizes
        groups = self._req_status[request.request_id].group_states
        for size, group in zip(sizes, groups, strict=True):
            if not size:
                group.next_stored_chunk_idx = 0

    plant.around(Connector, "update_state_after_alloc", load)


@loads
def cursors_move_whatever_the_policy(plant: Plant) -> None:
    def load(original: Any, self: Any, request: Any, *args: Any) -> Any:
        context = self._req_status[request.request_id].offloading_context
        policy, context.policy = context.policy, OffloadPolicy.CHUNK_LEVEL
        original(self, request, *args)
        context.policy = policy

    plant.around(Connector, "update_state_after_alloc", load)


@stores
def blocks_are_forgotten_of_what_is_scheduled_alone(plant: Plant) -> None:
    def update(original: Any, self: Any, output: Any) -> None:
        states, scheduled = self._req_status, output.num_scheduled_tokens
        self._req_status = {name: states[name] for name in scheduled}
        original(self, output)
        self._req_status = states

    plant.around(Connector, "_update_req_states", update)


@stores
def blocks_behind_a_window_are_null(plant: Plant) -> None:
    def update(original: Any, self: Any, output: Any) -> None:
        original(self, output)
        for name in output.num_scheduled_tokens:
            state = self._req_status[name]
            for group in self._sliding_window_groups:
                config, ids = self.config.kv_group_configs[group], state.group_states[group]
                window = config.sliding_window_size_in_chunks * self.config.blocks_per_chunk
                end = state.req.num_computed_tokens // config.tokens_per_block - window - 1
                ids.block_ids[: max(end, 0)] = [0] * max(end, 0)

    plant.around(Connector, "_update_req_states", update)


@stores
def what_ended_is_stored_first(plant: Plant) -> None:
    def build(original: Any, self: Any, output: Any) -> Any:
        scheduled, ended = output.num_scheduled_tokens, output.finished_req_ids
        first = SimpleNamespace(num_scheduled_tokens={}, finished_req_ids=ended)
        then = SimpleNamespace(num_scheduled_tokens=scheduled, finished_req_ids=())
        return original(self, first) | original(self, then)

    plant.around(Connector, "_build_store_jobs", build)


@contextmanager
def _noting_answers(manager: Any, note: Callable[[Any, Any, Any], None]) -> Iterator[None]:
    """Pass each offer to store, its context and its answer to ``note``."""
    offer = manager.prepare_store

    def asking(keys: Any, context: Any) -> Any:
        answer = offer(keys, context)
        note(keys, context, answer)
        return answer

    manager.prepare_store = asking
    yield
    del manager.prepare_store


@stores
def refused_offers_are_not_made_again(plant: Plant) -> None:
    def build(original: Any, self: Any, output: Any) -> Any:
        refused = []

        def note(_: Any, context: Any, answer: Any) -> None:
            if answer is None:
                refused.append(context.req_id)

        with _noting_answers(self.manager, note):
            jobs = original(self, output)
        for name in refused:
            state = self._req_status[name]
            state.advance_stored_idx(state.req.num_prompt_tokens)
        return jobs

    plant.around(Connector, "_build_store_jobs", build)


@stores
def cursors_stop_at_what_was_not_accepted(plant: Plant) -> None:
    def build(original: Any, self: Any, output: Any) -> Any:
        parts = []

        def note(keys: Any, context: Any, answer: Any) -> None:
            if answer is not None and 0 < len(answer.keys_to_store) < len(keys):
                groups = self._req_status[context.req_id].group_states
                parts.append([(group, group.next_stored_chunk_idx) for group in groups])

        with _noting_answers(self.manager, note):
            jobs = original(self, output)
        for group, start in (each for part in parts for each in part):
            group.next_stored_chunk_idx = start
        return jobs

    plant.around(Connector, "_build_store_jobs", build)


@stores
def states_are_stored_last(plant: Plant) -> None:
    later: list[Any] = []
    build_states = Connector._build_partial_tail_store_jobs

    def not_yet(original: Any, self: Any, output: Any) -> Any:
        later.append(output)
        return {}

    plant.around(Connector, "_build_partial_tail_store_jobs", not_yet)

    def build(original: Any, self: Any, output: Any) -> Any:
        jobs = original(self, output)
        return jobs | build_states(self, later.pop())

    plant.around(Connector, "_build_store_jobs", build)


@stores
def tails_of_requests_that_store_nothing_are_not_stored(plant: Plant) -> None:
    def build(original: Any, self: Any, output: Any) -> Any:
        told = output.kv_connector_block_state
        for name in list(told.boundary_state_offloads if told else ()):
            if self._req_status[name].max_offload_tokens == 0:
                del told.boundary_state_offloads[name]
        return original(self, output)

    plant.around(Connector, "_build_partial_tail_store_jobs", build)


def _with_mask(plant: Plant, change: Any) -> None:
    def mask(original: Any, self: Any, **given: Any) -> Any:
        change(given)
        return original(self, **given)

    plant.around(Connector, "_reachable_store_block_mask", mask)


@stores
def everything_is_reachable(plant: Plant) -> None:
    plant.put(Connector, "_reachable_store_block_mask", lambda *_, **__: None)


@stores
def eagle_needs_no_more(plant: Plant) -> None:
    def change(given: Any) -> None:
        given["group_config"] = given["group_config"]._replace(is_eagle_group=False)

    _with_mask(plant, change)


@stores
def windows_are_not_widened(plant: Plant) -> None:
    def change(given: Any) -> None:
        spec = given["group_config"].kv_cache_spec
        if getattr(spec, "extra_retained_tokens", 0):
            spec = type(spec)(**{**vars(spec), "extra_retained_tokens": 0})
            given["group_config"] = given["group_config"]._replace(kv_cache_spec=spec)

    _with_mask(plant, change)


@stores
def masks_know_one_rank(plant: Plant) -> None:
    def change(self: Any) -> None:
        self.config = self.config._replace(dcp_world_size=1)

    plant.after_init(Connector, change)


@stores
def ends_of_prompts_are_not_reachable(plant: Plant) -> None:
    _with_mask(plant, lambda given: given.update(reachable_boundaries=()))


class Hidden(dict[int, Any]):
    def keys(self) -> Any:
        return set()


@ends
def new_loads_of_what_was_preempted_are_flushed(plant: Plant) -> None:
    def build(original: Any, self: Any, output: Any) -> Any:
        self._current_batch_load_jobs = Hidden(self._current_batch_load_jobs)
        return original(self, output)

    plant.around(Connector, "_build_connector_meta", build)


@ends
def what_is_taken_anew_is_not_flushed(plant: Plant) -> None:
    def build(original: Any, self: Any, output: Any) -> Any:
        watched, self._block_id_to_pending_jobs = self._block_id_to_pending_jobs, {}
        metadata = original(self, output)
        for block_id, jobs in self._block_id_to_pending_jobs.items():
            watched.setdefault(block_id, set()).update(jobs)
        self._block_id_to_pending_jobs = watched
        return metadata

    plant.around(Connector, "_build_connector_meta", build)


@ends
def one_report_ends_a_job(plant: Plant) -> None:
    def update(original: Any, self: Any, output: Any) -> None:
        report = output.kv_connector_worker_meta
        for job_id, count in (report.completed_jobs if report else {}).items():
            if job_id in self._jobs:
                self._jobs[job_id].pending_count = count
        original(self, output)

    plant.around(Connector, "_update_connector_output", update)


@ends
def flushes_are_cleared_in_place(plant: Plant) -> None:
    told: dict[int, set[int]] = {}

    def build(original: Any, self: Any, output: Any) -> Any:
        told.pop(id(self), set()).clear()
        metadata = original(self, output)
        told[id(self)] = metadata.jobs_to_flush
        return metadata

    plant.around(Connector, "_build_connector_meta", build)


@ends
def jobs_cannot_be_taken_out(plant: Plant) -> None:
    def build(original: Any, self: Any, output: Any) -> Any:
        metadata = original(self, output)
        metadata.store_jobs = MappingProxyType(metadata.store_jobs)
        return metadata

    plant.around(Connector, "_build_connector_meta", build)


@ends
def stored_keys_are_told_in_their_order(plant: Plant) -> None:
    def complete(original: Any, self: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, sorted(keys), *args, **kwargs)

    plant.around(Tier, "complete_store", complete)


@ends
def ended_requests_may_use_new_keys(plant: Plant) -> None:
    def record(original: Any, self: Any, keys: Any, context: Any, *args: Any, **more: Any) -> Any:
        state = self._get_request_cache_access(context)
        has_ended, state.finished = state.finished, False
        original(self, keys, context, *args, **more)
        state.finished = has_ended

    plant.around(Tier, "_record_request_cache_access", record)


FAULTS = {fault.name: fault for area in (lookups, loads, stores, ends) for fault in area.all}
