"""The visible state of a step and of a connector, as values that can be compared."""

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import RequestOffloadState

# The connector's methods that vLLM's scheduler calls.
HOOKS = (
    "on_new_request",
    "get_num_new_matched_tokens",
    "update_state_after_alloc",
    "get_external_cache_hit_sources",
    "build_connector_meta",
    "update_connector_output",
    "request_finished",
    "take_events",
    "get_stats",
    "has_pending_push_work",
    "reset_cache",
)
_NOT_STATE = {
    *HOOKS,
    # It is chosen once, and shows in which groups are asked.
    "_full_attention_groups",
    "_sliding_window_groups",
    "_lookup_groups",
    "config",
    "manager",
    "_connector_stats",
    "_events_tracker",
    "_lookup_complete_chunks",
    "_planner",
    "_reset_fence_since",
    "shadow",
}
_NOT_REQUEST_STATE = {"config", "req", "req_context", "deferred_lookup_start_time"}
_REQUEST_STATE = [name for name in RequestOffloadState.__slots__ if name not in _NOT_REQUEST_STATE]


@dataclass
class StepReport:
    """Everything that a side shows of a step."""

    step: list[Any]
    jobs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    stats: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        loads, stores, flushes = (sum(len(each[i]) for each in self.jobs) for i in range(3))
        return {
            "step": 1,
            "loads": loads,
            "stores": stores,
            "flushes": flushes,
            "preemptions": len(self.step[-1]),
            "events": len(self.events),
        }


def plain_step(output: Any) -> tuple[Any, ...]:
    new = [(r.req_id, r.block_ids, r.num_computed_tokens) for r in output.scheduled_new_reqs]
    cached = output.scheduled_cached_reqs
    return (
        new,
        (cached.req_ids, cached.new_block_ids, cached.num_computed_tokens),
        dict(output.num_scheduled_tokens),
        sorted(output.finished_req_ids),
        sorted(output.preempted_req_ids or ()),
    )


def plain_metadata(metadata: Any) -> list[Any]:
    """Return the loads, stores and flushes of each connector."""
    return [
        [_jobs(each.load_jobs), _jobs(each.store_jobs), sorted(each.jobs_to_flush or ())]
        for each in getattr(metadata, "metadata", [metadata])
    ]


def _jobs(jobs: Any) -> list[Any]:
    return [
        (
            job_id,
            job.req_id,
            _spec(job.src_spec),
            _spec(job.dst_spec),
            getattr(job, "sync", False),
        )
        for job_id, job in jobs.items()
    ]


def _spec(spec: Any) -> Any:
    fields = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in vars(spec).items()}
    return type(spec).__name__, str(spec.block_ids.dtype), fields


def plain_outputs(outputs: Any) -> list[Any]:
    """Return what clients get."""
    return [
        (out.request_id, out.new_token_ids, out.finish_reason, out.prefill_stats)
        for each in outputs.values()
        for out in each.outputs
    ]


def plain_stats(outputs: Any) -> list[Any]:
    """Return the counts, without times."""
    reported = [each.scheduler_stats for each in outputs.values() if each.scheduler_stats]
    return [
        (stats.kv_cache_usage, stats.connector_prefix_cache_stats, _timeless(stats))
        for stats in reported
    ]


def _timeless(stats: Any) -> Any:
    return _without_times(stats.kv_connector_stats)


def _without_times(value: Any) -> Any:
    if not isinstance(value, dict):
        return vars(value) if hasattr(value, "__dict__") else value
    return {
        key: len(each) if "delay" in str(key) else _without_times(each)
        for key, each in value.items()
        if "time" not in str(key)
    }


def plain_state(connector: Any, num_blocks: int) -> dict[str, Any]:
    """Return the whole state of a connector over a pool of ``num_blocks`` blocks."""
    inside = {k: v for k, v in vars(connector).items() if k not in _NOT_STATE}
    inside["_req_status"] = {
        req_id: _request_state(state) for req_id, state in connector._req_status.items()
    }
    inside["_chunks_being_loaded"] = set(connector._chunks_being_loaded or ())
    # vLLM has a set, and kvoxide an object that does not iterate over all.
    allocated = inside["_current_batch_allocated_block_ids"]
    inside["_current_batch_allocated_block_ids"] = {
        block_id for block_id in range(num_blocks) if block_id in allocated
    }
    inside["_current_batch_load_jobs"] = _jobs(inside["_current_batch_load_jobs"])
    inside["asked"] = getattr(connector.manager, "asked", None)
    return inside


def _request_state(state: Any) -> dict[str, Any]:
    fields = {name: getattr(state, name) for name in _REQUEST_STATE}
    fields["positions"] = dict(state.req_context._offload_key_positions)
    return fields
