"""The groups that vLLM creates for models with recurrent states."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from vllm.model_executor.layers.mamba.mamba_utils import (
    MambaStateDtypeCalculator,
    MambaStateShapeCalculator,
)
from vllm.v1.core import kv_cache_planning
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, MLAAttentionSpec

# The block sizes that attention kernels require, with MLA and without.
KERNEL_BLOCK, MLA_KERNEL_BLOCK = 16, 128
BFLOAT16 = torch.bfloat16


@dataclass(frozen=True)
class Model:
    """Layers, and the size of one layer of each kind: of an attention layer for one token."""

    num_states: int
    num_attention: int
    shapes: Any
    dtypes: Any
    attention: Any
    kernel_block: int = KERNEL_BLOCK
    exports_states: bool = False


def full(num_kv_heads: int, head_size: int) -> Any:
    return FullAttentionSpec(
        block_size=1, num_kv_heads=num_kv_heads, head_size=head_size, dtype=BFLOAT16
    )


def mla(head_size: int) -> Any:
    return MLAAttentionSpec(block_size=1, num_kv_heads=1, head_size=head_size, dtype=BFLOAT16)


# Sizes of Qwen3-Next-80B-A3B, Nemotron-H-8B and Kimi-Linear-48B-A3B, from their configurations.
MODELS = {
    "qwen3-next": Model(
        num_states=36,
        num_attention=12,
        shapes=MambaStateShapeCalculator.gated_delta_net_state_shape(1, 16, 32, 128, 128, 4),
        dtypes=MambaStateDtypeCalculator.gated_delta_net_state_dtype(BFLOAT16, "auto", "auto"),
        attention=full(num_kv_heads=2, head_size=256),
    ),
    "nemotron-h": Model(
        num_states=24,
        num_attention=4,
        shapes=MambaStateShapeCalculator.mamba2_state_shape(1, 128 * 64, 8, 128, 64, 128, 4),
        dtypes=MambaStateDtypeCalculator.mamba2_state_dtype(BFLOAT16, "auto", "float32"),
        attention=full(num_kv_heads=8, head_size=128),
        exports_states=True,
    ),
    "kimi-linear": Model(
        num_states=20,
        num_attention=7,
        shapes=MambaStateShapeCalculator.kda_state_shape(1, 32, 128),
        dtypes=MambaStateDtypeCalculator.kda_state_dtype(BFLOAT16, "auto", "auto"),
        attention=mla(512 + 64),
        kernel_block=MLA_KERNEL_BLOCK,
    ),
}


def block_size(model: Model) -> int:
    """Return how many tokens of attention take as much memory as a state, in whole blocks of the
    kernels."""
    state = MambaSpec(shapes=model.shapes, dtypes=model.dtypes, block_size=-1).page_size_bytes
    block = model.attention.page_size_bytes * model.kernel_block
    return int(-(-state // block)) * model.kernel_block


def vllm_groups(model: Model, size: int) -> list[Any]:
    """Return the specs of the groups, in vLLM's order, which is the order of their first layers."""
    attention = replace(model.attention, block_size=size)
    state = MambaSpec(
        shapes=model.shapes,
        dtypes=model.dtypes,
        block_size=size,
        page_size_padded=attention.page_size_bytes,
        mamba_cache_mode="align",
    )
    layers = {f"state.{i}": state for i in range(model.num_states)}
    layers |= {f"attention.{i}": attention for i in range(model.num_attention)}
    groups = kv_cache_planning._get_kv_cache_groups_uniform_page_size(layers)
    return [group.kv_cache_spec for group in groups]
