"""Models with multi-head latent attention: one vector for each token, on every rank."""

from typing import Final

from kvoxide.model.config import Config
from kvoxide.model.deployment import Deployment
from kvoxide.model.families.attention import cache_bytes
from kvoxide.model.families.sharding import share
from kvoxide.model.layers import LayerCache, Layers
from kvoxide.model.precision import is_quantized

# DeepSeek's packed layout of V3.2: 512 elements in 8 bits, their scales, 64 in 16 bits.
_PACKED_BYTES: Final = 656
# The indexer keeps its keys in 8 bits, with a scale in 32 bits for each 128 of them.
_SCALED: Final = 128
_SCALE_BYTES: Final = 4
FLOAT32_BYTES: Final = 4


def latent_layer(config: Config, deployment: Deployment) -> LayerCache:
    """A layer that keeps a compressed vector and a rotary key for each token."""
    text = config.text
    share(text.count("num_attention_heads"), deployment.tensor_parallel, "attention heads")
    size = text.count("kv_lora_rank") + text.count("qk_rope_head_dim")
    content = size * cache_bytes(config, deployment)
    return LayerCache("mla_attention", content, layout=(size,))


def latent(config: Config, deployment: Deployment) -> Layers:
    """DeepSeek V2 and V3, and models built like them."""
    return [(latent_layer(config, deployment),)] * config.text.num_layers


def indexed(config: Config, deployment: Deployment) -> Layers:
    """DeepSeek V3.2: beside each layer, the keys of an indexer that chooses tokens."""
    layer = latent_layer(config, deployment)
    if is_quantized(deployment.cache_dtype):
        layer = LayerCache("mla_attention", _PACKED_BYTES, layout=("packed",))
    keys = config.text.count("index_head_dim")
    indexer = LayerCache("mla_attention", scaled(keys), layout=("indexer",))
    return [(indexer, layer)] * config.text.num_layers


def scaled(elements: int) -> int:
    """The bytes of a key of an indexer."""
    return elements + elements // _SCALED * _SCALE_BYTES
