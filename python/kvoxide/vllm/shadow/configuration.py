"""How a shadowed manager was made, as its recording says it and as a replay makes it again."""

import platform
from collections.abc import Mapping
from typing import Any, Final

from kvoxide._core import KVCacheConfig, KVCacheGroupSpec, __version__
from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.adapter import NATIVE_SPECS, group_specs, make_engine
from kvoxide.vllm.environment import Release, releases
from kvoxide.vllm.shadow.description import Json

_GROUP: Final = (
    "kind",
    "block_size",
    "sliding_window",
    "attention_chunk_size",
    "extra_retained_tokens",
    "is_eagle_group",
    "prefix_cacheable",
    "layout",
)


def configuration_of(arguments: Mapping[str, Any]) -> Json:
    """vLLM's constructor arguments, as ``kvoxide shadow`` rebuilds them."""
    config = arguments["kv_cache_config"]
    objects = ("self", "kv_cache_config", "metrics_collector")
    return {
        "kvoxide": __version__,
        "vllm": releases.installed_version(),
        "python": platform.python_version(),
        "arguments": {k: v for k, v in arguments.items() if k not in objects},
        "num_blocks": config.num_blocks,
        "retention_interval": config.prefix_cache_retention_interval,
        "needs_kv_cache_zeroing": config.needs_kv_cache_zeroing,
        "groups": [
            {name: getattr(group, name) for name in _GROUP}
            for group in group_specs(config.kv_cache_groups)
        ],
    }


def vllm_config(configuration: Mapping[str, Json]) -> Any:
    """The configuration of vLLM's manager that a recording was made of."""
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
    from vllm.v1.kv_cache_interface import KVCacheConfig as VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec as VllmGroup

    class Config(VllmConfig):  # type: ignore[misc]
        needs_kv_cache_zeroing = configuration["needs_kv_cache_zeroing"]

    register_all_kvcache_specs(None)
    return Config(
        num_blocks=configuration["num_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[
            VllmGroup([f"layer.{i}"], _vllm_spec(group), is_eagle_group=group["is_eagle_group"])
            for i, group in enumerate(configuration["groups"])
        ],
        prefix_cache_retention_interval=configuration["retention_interval"],
    )


def _vllm_spec(group: Mapping[str, Json]) -> Any:
    import torch
    from vllm.v1 import kv_cache_interface as interface

    (name,) = (name for name, native in NATIVE_SPECS.items() if native[0] == group["kind"])
    fields = {"block_size": group["block_size"]}
    for field in ("sliding_window", "attention_chunk_size"):
        if group[field] is not None:
            fields[field] = group[field]
    if group["sliding_window"] is not None:
        fields["extra_retained_tokens"] = group["extra_retained_tokens"]
    if not group["prefix_cacheable"]:
        fields["bounded_replay"] = True
    # The size of a head keeps groups apart that were apart.
    head_size = 64 + group["layout"]
    return getattr(interface, name)(
        num_kv_heads=1, head_size=head_size, dtype=torch.float16, **fields
    )


def engine_of(configuration: Mapping[str, Json], release: Release) -> VllmManager:
    """The engine of a manager that a recording was made of, without what vLLM's code makes of its
    reports."""
    return make_engine(
        KVCacheConfig(
            configuration["num_blocks"],
            [_engine_spec(group) for group in configuration["groups"]],
            needs_kv_cache_zeroing=configuration["needs_kv_cache_zeroing"],
        ),
        configuration["arguments"],
        release,
        retention_interval=configuration["retention_interval"],
        waiting_states=["WAITING", "PREEMPTED"],
    )


def _engine_spec(group: Mapping[str, Json]) -> KVCacheGroupSpec:
    kind, block_size = group["kind"], group["block_size"]
    details = {k: v for k, v in group.items() if k not in ("kind", "block_size")}
    return KVCacheGroupSpec(kind, block_size, **details)
