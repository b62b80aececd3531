"""Reads what a recording holds about CPU memory: the settings of vLLM's offloading connector, and
the loads that begin in a step."""

from typing import Any


def loading_requests(output: Any) -> list[str]:
    """Return the requests whose loads begin in a step and last longer than the step."""
    metadata = getattr(output, "kv_connector_metadata", None)
    loading = []
    for part in getattr(metadata, "metadata", (metadata,)):
        jobs = getattr(part, "load_jobs", None)
        if isinstance(jobs, dict):
            loading += [job.req_id for job in jobs.values() if not getattr(job, "sync", False)]
    return loading


def host_memory_of(scheduler: Any) -> dict[str, Any] | None:
    """Return the settings of vLLM's CPU memory, by the names of ``kvoxide.HostMemory``. Return None
    without CPU memory, or for a connector that a replay cannot play."""
    connector = getattr(scheduler.connector, "connector_scheduler", None)
    config = getattr(connector, "config", None)
    try:
        extra = scheduler.vllm_config.kv_transfer_config.kv_connector_extra_config
        (info,) = connector.manager.config_info()
        num_chunks = int(info["cpu_num_chunks"])
        if num_chunks < 1 or config.blocks_per_chunk != 1:
            return None
        return {
            "num_chunks": num_chunks,
            "chunk_bytes": int(info["cpu_kv_cache_size_bytes"]) // num_chunks,
            "eviction_policy": str(extra.get("eviction_policy", "lru")),
            "store_threshold": int(extra.get("store_threshold", 0)),
            "max_tracker_size": int(extra.get("max_tracker_size", 64_000)),
            "offload_prompt_only": bool(config.offload_prompt_only),
        }
    except Exception:
        return None
