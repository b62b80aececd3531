"""Models with recurrent states in addition to attention: the content of a state, and the layers
that have one."""

from collections.abc import Sequence
from math import prod
from typing import Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.config import Config
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.families.attention import attention_layer, derived_head_size
from kvoxide.lab.model.families.latent import FLOAT32_BYTES, latent_layer
from kvoxide.lab.model.families.sharding import share
from kvoxide.lab.model.fields import Fields
from kvoxide.lab.model.layers import LayerCache, Layers
from kvoxide.lab.model.precision import element_bytes

ATTENTION: Final = ("attention", "full_attention")
# Layers of a hybrid that keep nothing.
_KEEPS_NOTHING: Final = ("mlp", "moe")
_KINDS: Final = (*ATTENTION, *_KEEPS_NOTHING, "mamba", "mamba2", "linear_attention", "conv")


def state_layer(
    conv: tuple[int, ...], state: tuple[int, ...], conv_bytes: int, state_bytes: int
) -> LayerCache:
    """Return a layer whose state is the inputs of a convolution and a recurrent state, with these
    shapes and bytes per element."""
    content = prod(conv) * conv_bytes + (prod(state) * state_bytes if state else 0)
    return LayerCache("mamba", content, layout=(*conv, *state))


def mamba_2(
    config: Config,
    deployment: Deployment,
    *,
    inner: int,
    groups: int,
    heads: int,
    head_size: int,
    state_size: int,
    kernel: int,
    state_dtype: str,
) -> LayerCache:
    """Return a layer of Mamba-2, whose kernels can export a state inside a chunk.

    The sizes are the model's. If there are more ranks than groups, groups are repeated.
    """
    ranks = deployment.tensor_parallel
    all_groups = groups if groups % ranks == 0 else ranks
    conv = share(inner + 2 * all_groups * state_size, ranks, "channels of a convolution")
    state = (share(heads, ranks, "heads of states"), head_size, state_size)
    dtypes = element_bytes(config.dtype), element_bytes(state_dtype)
    cache = state_layer((kernel - 1, conv), state, *dtypes)
    return LayerCache(
        cache.kind,
        cache.content_bytes,
        cache.layout,
        num_prefill_checkpoint_blocks=1,
        prefill_checkpoint_alignment=1,
    )


def gated_delta_net(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Qwen3-Next, whose states are in the model's precision."""
    return _gated(config, deployment, attention_layer(config, deployment), config.dtype)


def qwen_3_5(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Qwen3.5, whose states have their own precision."""
    state_dtype = config.text.text("mamba_ssm_dtype", config.dtype)
    return _gated(config, deployment, attention_layer(config, deployment), state_dtype)


def olmo_hybrid(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of OLMo Hybrid."""
    in_full = attention_layer(config, deployment, size=derived_head_size(config.text))
    return _gated(config, deployment, in_full, config.dtype)


def _gated(config: Config, deployment: Deployment, in_full: LayerCache, state_dtype: str) -> Layers:
    text, ranks = config.text, deployment.tensor_parallel
    key_heads, value_heads = (
        text.count("linear_num_key_heads"),
        text.count("linear_num_value_heads"),
    )
    key, value = text.count("linear_key_head_dim"), text.count("linear_value_head_dim")
    channels = share(2 * key * key_heads + value * value_heads, ranks, "channels of a convolution")
    heads = share(value_heads, ranks, "heads of states")
    state = state_layer(
        (text.count("linear_conv_kernel_dim") - 1, channels),
        (heads, value, key),
        element_bytes(config.dtype),
        element_bytes(state_dtype),
    )
    return _layers(_kinds(text), state, in_full)


def _kinds(text: Fields) -> list[str]:
    """Return the kind of each layer. If the file has none, the class of the configuration derives
    it."""
    kinds = text.kinds(_KINDS)
    if kinds is None:
        raise ConfigError(text.missing("layer_types"))
    return kinds


def kimi_linear(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Kimi-Linear: Kimi delta attention, and latent attention in some."""
    text, ranks = config.text, deployment.tensor_parallel
    linear = text.part("linear_attn_config")
    heads, size = linear.count("num_heads"), linear.count("head_dim")
    state = state_layer(
        (linear.count("short_conv_kernel_size") - 1, share(3 * heads * size, ranks, "channels")),
        (share(heads, ranks, "heads of states"), size, size),
        element_bytes(config.dtype),
        FLOAT32_BYTES,
    )
    # Layers are counted from 1.
    states = linear.counts("kda_layers") or []
    layers = range(1, text.num_layers + 1)
    kinds = ["linear_attention" if layer in states else "attention" for layer in layers]
    return _layers(kinds, state, latent_layer(config, deployment))


def granite_4(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Granite 4: Mamba-2, and attention in some."""
    text = config.text
    state = mamba_2(
        config,
        deployment,
        inner=text.count("mamba_expand") * text.count("hidden_size"),
        groups=text.count("mamba_n_groups"),
        heads=text.count("mamba_n_heads"),
        head_size=text.count("mamba_d_head"),
        state_size=text.count("mamba_d_state"),
        kernel=text.count("mamba_d_conv"),
        state_dtype=config.dtype,
    )
    in_full = attention_layer(config, deployment, size=derived_head_size(text))
    return _layers(_kinds(text), state, in_full)


def falcon_h1(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Falcon-H1: attention and Mamba-2 in each."""
    text = config.text
    expanded = text.count("mamba_expand") * text.count("hidden_size")
    state = mamba_2(
        config,
        deployment,
        inner=text.optional_count("mamba_d_ssm") or expanded,
        groups=text.count("mamba_n_groups"),
        heads=text.count("mamba_n_heads"),
        head_size=text.count("mamba_d_head"),
        state_size=text.count("mamba_d_state"),
        kernel=text.count("mamba_d_conv"),
        state_dtype=config.dtype,
    )
    return [(attention_layer(config, deployment), state)] * text.num_layers


def nemotron_h(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Nemotron-H: Mamba-2, attention, and some layers that keep nothing."""
    text = config.text
    heads, head_size = text.count("mamba_num_heads"), text.count("mamba_head_dim")
    state = mamba_2(
        config,
        deployment,
        inner=heads * head_size,
        groups=text.count("n_groups"),
        heads=heads,
        head_size=head_size,
        state_size=text.count("ssm_state_size"),
        kernel=text.count("conv_kernel"),
        state_dtype=text.text("mamba_ssm_cache_dtype", "float32"),
    )
    window = text.optional_count("sliding_window")
    kinds = text.kinds(_KINDS, "layers_block_type")
    if kinds is None:
        raise ConfigError(text.missing("layers_block_type"))
    return _layers(kinds, state, attention_layer(config, deployment, window))


def lfm2(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of LFM2: short convolutions, and attention in some."""
    return _convolutions(config, deployment, config.text.count("conv_dim"))


def lfm2_moe(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of LFM2 with experts, whose convolutions are as wide as its layers."""
    return _convolutions(config, deployment, config.text.count("hidden_size"))


def _convolutions(config: Config, deployment: Deployment, channels: int) -> Layers:
    text = config.text
    channels = share(channels, deployment.tensor_parallel, "channels of a convolution")
    state = state_layer(
        (text.count("conv_L_cache") - 1, channels), (), element_bytes(config.dtype), 0
    )
    in_full = attention_layer(config, deployment, size=derived_head_size(text))
    return _layers(_kinds(text), state, in_full)


def jamba(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Jamba: Mamba, and attention in one layer of a period."""
    text = config.text
    inner = text.count("mamba_expand") * text.count("hidden_size")
    channels = share(inner, deployment.tensor_parallel, "channels of a convolution")
    element = element_bytes(config.dtype)
    state = state_layer(
        (text.count("mamba_d_conv") - 1, channels),
        (channels, text.count("mamba_d_state")),
        element,
        element,
    )
    in_full = attention_layer(config, deployment, size=derived_head_size(text))
    return _layers(_kinds(text), state, in_full)


def _layers(kinds: Sequence[str], state: LayerCache, attention: LayerCache) -> Layers:
    of_kind = dict.fromkeys(_KEEPS_NOTHING, ()) | dict.fromkeys(ATTENTION, (attention,))
    return [of_kind.get(kind, (state,)) for kind in kinds]
