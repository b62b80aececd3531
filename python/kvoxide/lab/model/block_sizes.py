"""The block size of a model. Attention kernels require some sizes. States require that pages are
equal.

A block of a state takes as much memory as the state. vLLM makes blocks of attention so large that
they can hold a state too, and pads the smaller of the two.
"""

from collections.abc import Callable
from dataclasses import replace
from math import ceil, lcm

from kvoxide._core import ConfigError
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.families import Kernels
from kvoxide.lab.model.layers import LayerCache, Layers
from kvoxide.lab.model.precision import is_quantized


def with_block_sizes(
    layers: Layers, kernels: Kernels, deployment: Deployment, uncached_state: int | None = None
) -> Layers:
    """Return the caches with their block sizes in tokens, as vLLM sets them. Without prefix
    caching, a state is one block of ``uncached_state`` tokens.

    Raises :class:`~kvoxide.ConfigError` if the kernels cannot have the wanted block size.
    """
    tokens = _kernel_block(kernels, deployment)
    caches = [cache for layer in layers for cache in layer]
    states = [cache for cache in caches if cache.is_state]
    if not states:
        return _each(layers, lambda cache: cache.with_block_size(cache.block_size or tokens))
    attention = next((cache.with_block_size(1) for cache in caches if not cache.is_state), None)
    if attention is None:
        raise ConfigError(
            "the model has no attention layer; vLLM cannot cache a model that has only recurrent"
            " states"
        )
    token_bytes = attention.page
    state_bytes = max(state.page for state in states)
    alignment = kernels.state_alignment if uncached_state is None else 1
    step = lcm(max(tokens, kernels.least_hybrid_block), alignment)
    tokens = max(tokens, step * ceil(state_bytes / (step * token_bytes)))
    page = tokens * token_bytes
    if uncached_state is not None:
        return _each(layers, lambda cache: _uncached(cache, tokens, page, uncached_state))
    return _each(layers, lambda cache: _beside_states(cache, tokens, page, kernels))


def _each(layers: Layers, change: Callable[[LayerCache], LayerCache]) -> Layers:
    return [tuple(map(change, layer)) for layer in layers]


def _kernel_block(kernels: Kernels, deployment: Deployment) -> int:
    is_fp8 = is_quantized(deployment.cache_dtype)
    smallest = kernels.quantized_block if is_fp8 else kernels.block
    wanted = deployment.block_size or max(smallest, kernels.chosen_block)
    if wanted % smallest:
        raise ConfigError(
            f"block_size is {wanted}; the model's attention kernels need a multiple of {smallest}"
        )
    return wanted


def _uncached(layer: LayerCache, tokens: int, page: int, whole: int) -> LayerCache:
    if not layer.is_state:
        return layer.with_block_size(tokens)
    return replace(layer.with_block_size(whole), kind="mamba_none").padded_to(page)


def _beside_states(layer: LayerCache, tokens: int, page: int, kernels: Kernels) -> LayerCache:
    sized = layer.with_block_size(tokens)
    if not layer.is_state:
        return sized
    padded = sized.padded_to(page)
    if kernels.state_alignment == 1:
        return padded
    # These kernels can export a state at the end of a block.
    return replace(padded, num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=tokens)
