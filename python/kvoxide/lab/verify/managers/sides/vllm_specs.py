"""Converts groups to vLLM's classes of specifications."""

from typing import Any

import torch
from vllm.v1 import kv_cache_interface
from vllm.v1.kv_cache_interface import (
    CrossAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
)

from kvoxide import group_kinds
from kvoxide.lab.verify.managers.scenarios import Group


def make_spec(group: Group) -> KVCacheSpec:
    match group.kind:
        case "mamba":
            return _make_mamba(group)
        case "hidden_states":
            return HiddenStateCacheSpec(**_shape(group), **_sharding(group))
        case "cross_attention":
            return CrossAttentionSpec(**_shape(group))
        case _:
            return _make_attention(group)


def _shape(group: Group) -> dict[str, Any]:
    return {
        "block_size": group.block_size,
        "num_kv_heads": 1,
        "head_size": 64 + group.layout,
        "dtype": torch.float16,
    }


def _sharding(group: Group) -> dict[str, Any]:
    return {"dcp_sharded": False} if group.is_replicated else {}


def _make_mamba(group: Group) -> KVCacheSpec:
    return MambaSpec(
        block_size=group.block_size,
        shapes=((4, 8 + group.layout), (16,)),
        dtypes=(torch.float32, torch.float32),
        mamba_cache_mode=group.mamba_mode,
        num_speculative_blocks=group.num_speculative_blocks,
        num_prefill_checkpoint_blocks=group.num_prefill_checkpoint_blocks,
        prefill_checkpoint_alignment=group.prefill_checkpoint_alignment,
    )


def _make_attention(group: Group) -> KVCacheSpec:
    """Return vLLM's specification of a group, with the sizes that kvoxide declares for the kind."""
    (kind,) = (kind for kind in group_kinds() if kind.name == group.kind)
    sizes: dict[str, Any] = dict.fromkeys(kind.required_sizes, group.window)
    sizes |= dict.fromkeys(kind.optional_sizes, group.extra_retained_tokens)
    if kind.prefix_caching == "optional":
        sizes["bounded_replay"] = not group.prefix_cacheable
    spec = getattr(kv_cache_interface, kind.vllm_spec)
    made: KVCacheSpec = spec(**_shape(group), **sizes, **_sharding(group))
    return made
