"""The configuration of a shadowed manager, as a recording describes it and as a replay rebuilds
it."""

import platform
from collections.abc import Mapping
from typing import Any

from kvoxide._core import KVCacheConfig, KVCacheGroupSpec, __version__, group_kinds
from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.adapter import group_specs, make_engine
from kvoxide.vllm.environment import Release, recognise, releases
from kvoxide.vllm.shadow.description import Json


def configuration_of(arguments: Mapping[str, Any]) -> Json:
    """Return vLLM's constructor arguments, in a form from which ``kvoxide shadow`` rebuilds
    them."""
    config = arguments["kv_cache_config"]
    objects = ("self", "kv_cache_config", "metrics_collector")
    return {
        "kvoxide": __version__,
        "vllm": releases.installed_version(),
        "release": recognise().release.version,
        "python": platform.python_version(),
        "arguments": {k: v for k, v in arguments.items() if k not in objects},
        "num_blocks": config.num_blocks,
        "retention_interval": config.prefix_cache_retention_interval,
        "needs_kv_cache_zeroing": config.needs_kv_cache_zeroing,
        "groups": [_description_of(group) for group in group_specs(config.kv_cache_groups)],
    }


def _description_of(group: KVCacheGroupSpec) -> Json:
    return {
        "kind": group.kind,
        "block_size": group.block_size,
        **group.sizes,
        "is_eagle_group": group.is_eagle_group,
        "prefix_cacheable": group.prefix_cacheable,
        "dcp_sharded": group.dcp_sharded,
        "layout": group.layout,
    }


def vllm_config(configuration: Mapping[str, Json]) -> Any:
    """Return the configuration of vLLM's manager in a recording."""
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

    (kind,) = (kind for kind in group_kinds() if kind.name == group["kind"])
    sizes = ("block_size", *kind.required_sizes, *kind.optional_sizes)
    fields = {size: group[size] for size in sizes if group.get(size) is not None}
    if "extra_retained_tokens" in kind.optional_sizes and not group["prefix_cacheable"]:
        fields["bounded_replay"] = True
    # Groups that were kept apart get different sizes of a head or a state, which keeps them apart.
    size = 64 + group["layout"]
    cls = getattr(interface, kind.vllm_spec)
    if "dcp_sharded" in group:
        fields["dcp_sharded"] = group["dcp_sharded"]
    if issubclass(cls, interface.MambaSpec):
        return cls(shapes=((size,),), dtypes=(torch.float16,), **kind.vllm_attributes, **fields)
    return cls(num_kv_heads=1, head_size=size, dtype=torch.float16, **fields)


def engine_of(configuration: Mapping[str, Json], release: Release) -> VllmManager:
    """Return the engine of the manager in a recording, without the results that vLLM's code derives
    from it."""
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
