"""Lists the code of vLLM that kvoxide replaces or relies on.

The planning of a model's groups and sizes is not listed: its result is kvoxide's input. vLLM's
scheduler is not listed either, because its own code runs.
:mod:`kvoxide.vllm.environment.schedulers` checks its uses of the manager. Nor are vLLM's KV hints:
a hint that cannot be read is counted and logged, and changes no decision.
"""

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class TrackedNames:
    """The names of one file that are tracked, with all that they use in the file.

    ``methods`` are the tracked methods of every class. ``attributes`` are the tracked attributes of
    some classes, with the values assigned to them; they replace these classes' methods and fields.
    """

    names: tuple[str, ...]
    methods: tuple[str, ...] | None = None
    attributes: dict[str, tuple[str, ...]] = field(default_factory=dict)


MANAGER_CODE: Final = {
    "v1/core/kv_cache_manager.py": TrackedNames(names=("KVCacheBlocks", "KVCacheManager")),
    "v1/core/kv_cache_coordinator.py": TrackedNames(names=("get_kv_cache_coordinator",)),
    "v1/core/single_type_kv_cache_manager.py": TrackedNames(
        names=("get_manager_for_kv_cache_spec", "register_all_kvcache_specs")
    ),
    "v1/core/block_pool.py": TrackedNames(names=("BlockPool",)),
    "v1/core/kv_cache_metrics.py": TrackedNames(names=("KVCacheMetricsCollector",)),
    "v1/core/kv_cache_utils.py": TrackedNames(
        names=(
            "BlockHashListWithBlockSize",
            "FreeKVCacheBlockQueue",
            "KVCacheBlock",
            "KVCacheBlockCopy",
            "eagle_proof_margin",
            "generate_block_hash_extra_keys",
            "generate_lookahead_block_hash_extra_keys",
            "get_block_hash",
            "get_group_id",
            "get_request_block_hasher",
            "hash_block_tokens",
            "init_none_hash",
            "make_block_hash_with_group_id",
            "maybe_convert_block_hash",
            "null_head_len",
            "partial_hash_hits_enabled",
            "resolve_block_hashes",
            "resolve_cache_hit_alignment_tokens",
            "resolve_dcp_kv_block_size",
            "resolve_dcp_kv_cache_spec",
            "to_event_extra_keys",
            "trim_null_head",
        )
    ),
    "v1/kv_cache_interface.py": TrackedNames(
        names=(
            "ChunkedLocalAttentionSpec",
            "CircularBufferSpec",
            "CrossAttentionSpec",
            "FullAttentionSpec",
            "HiddenStateCacheSpec",
            "KVCacheConfig",
            "KVCacheGroupRole",
            "KVCacheGroupSpec",
            "KVCacheSpec",
            "MLAAttentionSpec",
            "MambaSpec",
            "RSWASpec",
            "SlidingWindowMLASpec",
            "SlidingWindowSpec",
            "UniformTypeKVCacheSpecs",
            "get_kv_cache_spec_kind",
            "get_kv_cache_spec_sliding_window",
            "get_mamba_prefill_checkpoint_position",
            "is_full_attention_spec",
            "is_mamba_prefill_checkpoint_valid",
            "iter_layer_specs",
        ),
        methods=(
            "__eq__",
            "__getattr__",
            "__getattribute__",
            "__hash__",
            "__new__",
            "__post_init__",
            "block_table_token_alignment",
            "first_spec",
            "has_mamba_layers",
            "max_admission_blocks_per_request",
            "needs_kv_cache_zeroing",
            "num_retained_tokens",
            "num_states",
            "prefix_cacheable",
            "prefix_cacheable_group_ids",
            "prefix_cacheable_groups",
            "prefix_replay_tokens",
            "tokens_per_state",
        ),
    ),
    "v1/kv_cache_spec_registry.py": TrackedNames(names=("KVCacheSpecRegistry",)),
    "v1/request.py": TrackedNames(
        names=("Request", "RequestStatus"),
        methods=(
            "__eq__",
            "__getattr__",
            "__getattribute__",
            "__hash__",
            "__setattr__",
            "append_output_token_ids",
            "get_skip_reading_prefix_cache",
            "num_tokens",
            "update_block_hashes",
        ),
        attributes={
            "Request": (
                "_all_token_ids",
                "_block_hasher",
                "_prompt_embeds_per_block_hashes",
                "all_token_ids",
                "block_hashes",
                "cache_salt",
                "kv_cache_report_mode",
                "lora_request",
                "mm_features",
                "num_computed_tokens",
                "num_in_flight_tokens",
                "num_preemptions",
                "num_prompt_tokens",
                "prompt_embeds",
                "request_id",
                "sampling_params",
                "session_id",
                "shared_prefix_boundary",
                "skip_reading_prefix_cache",
                "status",
            ),
            "RequestStatus": ("PREEMPTED", "WAITING"),
        },
    ),
    "v1/metrics/stats.py": TrackedNames(names=("KVCacheEvictionEvent", "PrefixCacheStats")),
    "v1/utils.py": TrackedNames(names=("ConstantList", "tensor_data")),
    "distributed/kv_events.py": TrackedNames(
        names=("AllBlocksCleared", "BlockRemoved", "BlockStored", "KVCacheEvent", "MEDIUM_GPU")
    ),
    "multimodal/utils.py": TrackedNames(names=("get_mm_features_in_window",)),
    "utils/hashing.py": TrackedNames(names=("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")),
    "utils/math_utils.py": TrackedNames(names=("cdiv", "round_down", "round_up")),
}
"""What counts of each file for the manager, by its path below the package ``vllm``."""

HOST_CODE: Final = {
    "v1/kv_offload/cpu/manager.py": TrackedNames(names=("CPUOffloadingManager",)),
    "v1/kv_offload/cpu/policies/lru.py": TrackedNames(names=("LRUCachePolicy",)),
    "v1/kv_offload/cpu/policies/arc.py": TrackedNames(names=("ARCCachePolicy",)),
    "v1/kv_offload/cpu/policies/base.py": TrackedNames(
        names=("CachePolicy", "ChunkStatus", "order_request_keys")
    ),
    "v1/kv_offload/cpu/policies/factory.py": TrackedNames(names=("CachePolicyFactory",)),
    "v1/kv_offload/cpu/common.py": TrackedNames(
        names=("CPULoadStoreSpec", "CPUOffloadingMetrics", "CPUOffloadingInfo"),
        methods=("__init__", "as_config_info", "chunk_ids"),
    ),
    "v1/kv_offload/base.py": TrackedNames(
        names=(
            "BlockIDsLoadStoreSpec",
            "GPULoadStoreSpec",
            "LookupResult",
            "Medium",
            "OffloadingEvent",
            "OffloadPolicy",
            "OffloadingManager",
            "PrepareStoreOutput",
            "ReqContext",
            "RequestOffloadingContext",
            "get_offload_group_idx",
            "make_offload_key",
        )
    ),
}
"""The same for the host tier."""

PRIMARY_TIER_CODE: Final = HOST_CODE | {
    "v1/kv_offload/tiering/manager.py": TrackedNames(names=("CPUPrimaryTierOffloadingManager",)),
}
"""The same for the host tier as the primary one of several tiers."""

_CONNECTOR: Final = "distributed/kv_transfer/kv_connector/v1/offloading"

CONNECTOR_CODE: Final = {
    f"{_CONNECTOR}/scheduler.py": TrackedNames(names=("OffloadingConnectorScheduler",)),
    f"{_CONNECTOR}/common.py": TrackedNames(names=("TransferJob",)),
    f"{_CONNECTOR}/events.py": TrackedNames(
        names=("OffloadingEventsTracker",), methods=("__init__", "record_lookup")
    ),
    "distributed/kv_transfer/kv_connector/utils.py": TrackedNames(names=("yield_req_data",)),
    "v1/metrics/cache_hit_source.py": TrackedNames(names=("CacheHitSource",)),
    "v1/kv_offload/base.py": HOST_CODE["v1/kv_offload/base.py"],
}
"""The same for the scheduler's side of the offloading connector."""

ALL_CODE: Final = MANAGER_CODE | PRIMARY_TIER_CODE | CONNECTOR_CODE

SCHEDULERS: Final = (
    "v1/core/sched/async_scheduler.py",
    "v1/core/sched/diffusion_scheduler.py",
    "v1/core/sched/interface.py",
    "v1/core/sched/scheduler.py",
)
"""vLLM's own schedulers, of which those of known releases need not be looked at."""

IGNORED_NAMES: Final = frozenset({"logger"})
"""Names that say something and decide nothing."""
