"""The first line of a recorded file: its format, and the deployment for a replay."""

import json
import secrets
from dataclasses import replace
from typing import Any

from kvoxide._core import KVCacheGroupSpec, __version__, group_kinds
from kvoxide.recording_format import FORMAT, FORMAT_FIELD, PART_FIELD, RECORDING_FIELD
from kvoxide.vllm.environment import Settings, recognise, releases, settings
from kvoxide.vllm.recording.offloading import host_memory_of

_ADAPTER = "kvoxide.vllm.adapter"


def header_of(scheduler: Any, started: float) -> dict[str, Any]:
    """Return the deployment of a scheduler. ``started`` is in seconds since the epoch. Sizes are in
    tokens. ``groups`` is None if only vLLM knows their kinds."""
    config = scheduler.kv_cache_config
    groups = _groups(config)
    policy = None if groups is None else _policy(scheduler, groups)
    return {
        FORMAT_FIELD: FORMAT,
        RECORDING_FIELD: secrets.token_hex(8),
        "started": started,
        "rank": rank_of(scheduler),
        "tokens_per_id": scheduler.hash_block_size,
        "kvoxide": __version__,
        "vllm": releases.installed_version(),
        "block_size": scheduler.block_size,
        "num_blocks": config.num_blocks,
        "max_running_requests": scheduler.max_num_running_reqs,
        "max_batched_tokens": scheduler.max_num_scheduled_tokens,
        "groups": groups,
        "rules": _rules(scheduler),
        "policy": policy,
        "samples": policy is not None and policy.startswith("adaptive"),
        **_served_as(scheduler),
    }


def header_line(header: dict[str, Any], kind: str, part: int) -> bytes:
    """Return the line for a file of a kind; ``part`` numbers the files of a kind."""
    return json.dumps({**header, "kind": kind, PART_FIELD: part}).encode() + b"\n"


def rank_of(scheduler: Any) -> int:
    """Return the data-parallel rank of a scheduler."""
    return int(scheduler.parallel_config.data_parallel_index)


def _served_as(scheduler: Any) -> dict[str, Any]:
    parallel, cache = scheduler.parallel_config, scheduler.cache_config
    return {
        "tensor_parallel": parallel.tensor_parallel_size,
        "pipeline_parallel": parallel.pipeline_parallel_size,
        "cache_dtype": str(cache.cache_dtype),
        "prefix_caching": bool(cache.enable_prefix_caching),
        "given_block_size": cache.block_size if cache.user_specified_block_size else None,
        "max_model_len": scheduler.max_model_len,
        "connector": None if scheduler.connector is None else type(scheduler.connector).__name__,
        "host_memory": host_memory_of(scheduler),
    }


def _rules(scheduler: Any) -> dict[str, Any] | None:
    """Return the settings that the scheduler passes to its manager in addition to groups and pool,
    and the settings that depend on the release of vLLM. Return None for an unknown release."""
    try:
        release = recognise().release
        config, cache = scheduler.vllm_config, scheduler.cache_config
        return {
            **release.manager_rules,
            "max_model_len": scheduler.max_model_len,
            "scheduler_block_size": scheduler.block_size,
            "hash_block_size": scheduler.hash_block_size,
            "max_in_flight_tokens": config.max_in_flight_tokens,
            "use_eagle": bool(scheduler.use_eagle_block_drop),
            "dcp_world_size": scheduler.dcp_world_size,
            "num_hash_lookahead_tokens": getattr(scheduler, "num_hash_lookahead_tokens", 0),
            "shared_prefix_checkpoint": bool(cache.enable_mamba_shared_prefix_checkpoint),
            "num_prefill_lookahead": scheduler.num_prefill_lookahead,
            "watermark": scheduler.scheduler_config.watermark,
            "num_blocks": scheduler.kv_cache_config.num_blocks,
            "prefix_replay_tokens": getattr(scheduler, "prefix_replay_tokens", 0),
            "num_spec_tokens": scheduler.num_spec_tokens,
            "is_async": bool(scheduler.scheduler_config.async_scheduling),
            "num_lookahead_tokens": scheduler.num_lookahead_tokens,
            "reserves_full_input": bool(scheduler.scheduler_reserve_full_isl),
            "frees_late": bool(getattr(scheduler, "defer_block_free", False)),
        }
    except Exception:
        return None


def _groups(config: Any) -> list[dict[str, Any]] | None:
    from kvoxide.vllm.adapter import group_specs

    try:
        specs = group_specs(config.kv_cache_groups)
    except Exception:
        return None
    return [_group(spec) for spec in specs]


def _group(spec: KVCacheGroupSpec) -> dict[str, Any]:
    sizes = {name: size for name, size in spec.sizes.items() if size is not None}
    return {
        "kind": spec.kind,
        "block_size": spec.block_size,
        "cached": spec.prefix_cacheable,
        "is_eagle_group": spec.is_eagle_group,
        "dcp_sharded": spec.dcp_sharded,
        "layout": spec.layout,
        **sizes,
    }


def _policy(scheduler: Any, groups: list[dict[str, Any]]) -> str:
    """Return the policy of a scheduler's manager, in the form of a replay's ``--policy``."""
    is_ours = type(scheduler.kv_cache_manager).__module__.startswith(_ADAPTER)
    ours = settings.current() if is_ours else Settings()
    if ours.retention == "adaptive":
        return ours.policy
    sparse = {kind.name for kind in group_kinds() if kind.is_sparse}
    interval = ours.retention_interval
    if interval is None:
        interval = getattr(scheduler.kv_cache_config, "prefix_cache_retention_interval", None)
    pin = ours.pin_min_drop_size
    if not any(group["kind"] in sparse for group in groups):
        return "vllm" if pin is None else f"pin={pin}"
    if interval == 0 and pin is None:
        return "vllm"
    if interval is None and pin is None:
        return "uncached-first"
    return replace(ours, retention_interval=interval).policy
