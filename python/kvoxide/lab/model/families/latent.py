"""Models with multi-head latent attention: one vector for each token, on every rank."""

from typing import Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.config import Config
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.families.attention import cache_bytes
from kvoxide.lab.model.families.sharding import share
from kvoxide.lab.model.fields import Fields
from kvoxide.lab.model.layers import LayerCache, Layers
from kvoxide.lab.model.precision import is_quantized

# DeepSeek's packed layout of V3.2: 512 elements in 8 bits, their scales, and 64 elements in 16
# bits.
_PACKED_BYTES: Final = 656
# The indexer keeps its keys in 8 bits, with a scale in 32 bits for each 128 of them.
_SCALED: Final = 128
_SCALE_BYTES: Final = 4
FLOAT32_BYTES: Final = 4
# The mark in index_topk_pattern of a layer that uses the indexer of an earlier one.
_SHARES: Final = "S"


def latent_layer(config: Config, deployment: Deployment) -> LayerCache:
    """Return a layer that keeps a compressed vector and a rotary key for each token."""
    text = config.text
    share(text.count("num_attention_heads"), deployment.tensor_parallel, "attention heads")
    size = text.count("kv_lora_rank") + text.count("qk_rope_head_dim")
    content = size * cache_bytes(config, deployment)
    return LayerCache("mla_attention", content, layout=(size,))


def latent(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of models with latent attention and no indexer."""
    return [(latent_layer(config, deployment),)] * config.text.num_layers


def latent_or_indexed(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of DeepSeek V2 and V3, whose classes can have an indexer too."""
    layers = indexed if has_indexer(config) else latent
    return layers(config, deployment)


def has_indexer(config: Config) -> bool:
    """Return whether vLLM's classes of DeepSeek give the model an indexer."""
    return config.text.has("index_topk")


def indexed(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of DeepSeek V3.2. An indexer chooses the tokens that a layer attends to.

    An indexer keeps keys. If layers share one, only the first of them keeps the keys.
    """
    layer = latent_layer(config, deployment)
    if is_quantized(deployment.cache_dtype):
        layer = LayerCache("mla_attention", _PACKED_BYTES, layout=("packed",))
    keys = config.text.count("index_head_dim")
    indexer = LayerCache("mla_attention", scaled(keys), layout=("indexer",))
    return [(indexer, layer) if has else (layer,) for has in _have_indexers(config.text)]


def _have_indexers(text: Fields) -> list[bool]:
    """Return for each layer whether it has an indexer of its own."""
    pattern, layers = text.get("index_topk_pattern"), range(text.num_layers)
    if pattern is not None:
        if not isinstance(pattern, str | list | tuple):
            raise ConfigError(f"{text.source}: index_topk_pattern is {pattern!r}; expected letters")
        return [layer >= len(pattern) or pattern[layer] != _SHARES for layer in layers]
    every = text.count("index_topk_freq", 1)
    offset = text.get("index_skip_topk_offset") if text.has("index_skip_topk_offset") else 2
    if type(offset) is not int:
        raise ConfigError(
            f"{text.source}: index_skip_topk_offset is {offset!r}; expected an integer"
        )
    return [max(layer - offset + 1, 0) % every == 0 for layer in layers]


def scaled(elements: int) -> int:
    """Return the bytes of a key of an indexer."""
    return elements + elements // _SCALED * _SCALE_BYTES
