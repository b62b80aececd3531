"""The engine that does the work of one manager of vLLM, from plain values."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvoxide._core import KVCacheConfig, Policy
from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.adapter.arguments import max_in_flight_tokens
from kvoxide.vllm.environment import Release

if TYPE_CHECKING:
    from kvoxide._core import RetentionName


def make_engine(
    config: KVCacheConfig,
    arguments: Mapping[str, Any],
    release: Release,
    *,
    retention_interval: int | None,
    waiting_states: Sequence[Any],
    num_tokens: tuple[object, str] | None = None,
    retention: "RetentionName" = "standard",
    protected_share: float | None = None,
    pin_min_drop_size: int | None = None,
    enable_kv_cache_events: bool = False,
    observe: bool = False,
    max_priority: int = 100,
    check_every: int = 0,
) -> VllmManager:
    """The engine for the constructor arguments of ``release``'s manager, by name.

    Raises :class:`~kvoxide.ConfigError` for a configuration that cannot work.
    """
    return VllmManager(
        config,
        max_model_len=arguments["max_model_len"],
        scheduler_block_size=arguments["scheduler_block_size"],
        hash_block_size=arguments["hash_block_size"],
        max_in_flight_tokens=max_in_flight_tokens(arguments),
        enable_caching=arguments["enable_caching"],
        use_eagle=arguments["use_eagle"],
        drops_flagged_groups=release.drops_flagged_groups,
        dcp_world_size=arguments.get("dcp_world_size", 1),
        num_hash_lookahead_tokens=arguments.get("num_hash_lookahead_tokens", 0),
        enable_mamba_shared_prefix_checkpoint=arguments.get(
            "enable_mamba_shared_prefix_checkpoint", False
        ),
        recaches_known_tail=release.recaches_known_tail,
        num_prefill_lookahead=arguments["num_prefill_lookahead"],
        enable_kv_cache_events=enable_kv_cache_events,
        watermark=arguments["watermark"],
        policy=Policy(
            retention=retention,
            retention_interval=retention_interval,
            pin_min_drop_size=pin_min_drop_size,
            protected_share=protected_share,
        ),
        keep_tail_below_boundary=release.keeps_block_below_junction,
        counts_null_references=release.counts_null_references,
        observe=observe,
        waiting_states=waiting_states,
        older_rules=release.older_rules,
        num_tokens=num_tokens,
        max_priority=max_priority,
        check_every=check_every,
    )
