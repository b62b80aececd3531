"""Models whose layers all keep keys and values: for all tokens, in a sliding window, or in a
chunk."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.config import Config
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.families.sharding import (
    head_size,
    kv_heads,
    require_shared_encoder,
    share,
)
from kvoxide.lab.model.families.windows import Windows, in_some_layers
from kvoxide.lab.model.fields import Fields
from kvoxide.lab.model.layers import Kind, LayerCache, Layers
from kvoxide.lab.model.precision import AUTO, element_bytes
from kvoxide.lab.model.quantization import NVFP4

# The head sizes that FlashInfer's kernels accept on Hopper. One byte is the scale of this many
# elements.
_NVFP4_HEADS: Final = (128, 256)
_ELEMENTS_OF_A_SCALE: Final = 16


def cache_bytes(config: Config, deployment: Deployment) -> int:
    """Return the bytes of one element of a key or a value."""
    return element_bytes(config.dtype if deployment.cache_dtype == AUTO else deployment.cache_dtype)


def attention_layer(
    config: Config,
    deployment: Deployment,
    window: int | None = None,
    kind: Kind = "sliding_window",
    total_kv_heads: int | None = None,
    size: int | None = None,
    fields: Fields | None = None,
) -> LayerCache:
    """Return a layer with a key and a value for each token. Without a ``window``, it is full
    attention.

    ``total_kv_heads`` and ``size`` of a head default to their values in ``fields``. ``fields``
    default to the language model's.
    """
    fields = fields or config.text
    heads = kv_heads(fields, deployment.tensor_parallel, total_kv_heads)
    size = size or head_size(fields)
    content = 2 * heads * _head_bytes(size, config, deployment)
    kind = "full_attention" if window is None else kind
    return LayerCache(kind, content, layout=(heads, size), window=window)


def _head_bytes(size: int, config: Config, deployment: Deployment) -> int:
    """Return the bytes of the key or the value of a head."""
    if deployment.cache_dtype != NVFP4:
        return size * cache_bytes(config, deployment)
    if size not in _NVFP4_HEADS or not config.is_text:
        raise ConfigError(
            "kvoxide knows an nvfp4 KV cache on Hopper only for text models with heads of"
            f" {_NVFP4_HEADS}. {config.architecture} has heads of {size}. Give another"
            " --kv-cache-dtype, or install vLLM so that kvoxide can ask it"
        )
    return size // 2 + size // _ELEMENTS_OF_A_SCALE


def attention(windows: Windows, *, derives_head: bool = False) -> Callable[..., Layers]:
    """Return a function for layers that differ in their windows only.

    With ``derives_head``, vLLM's class takes the size of a head from the hidden size and does not
    read ``head_dim``.
    """

    def layers(config: Config, deployment: Deployment) -> Layers:
        text = config.text
        size = derived_head_size(text) if derives_head else None
        return [
            (attention_layer(config, deployment, window, size=size),) for window in windows(text)
        ]

    return layers


def derived_head_size(text: Fields) -> int:
    """Return the size of a head of a class that does not read ``head_dim``."""
    size = text.count("hidden_size") // text.count("num_attention_heads")
    if size == 0:
        raise ConfigError(
            f"{text.source}: num_attention_heads is larger than hidden_size; correct the file"
        )
    return size


def granite_speech(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Granite Speech, whose encoder's outputs are shared by the ranks too."""
    outputs = config.whole.part("encoder_config").count("output_dim")
    share(outputs, deployment.tensor_parallel, "outputs of the encoder")
    return attention(in_some_layers)(config, deployment)


def glm_asr(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of GLM-ASR, whose encoder's heads are shared by the ranks too."""
    require_shared_encoder(config.whole, deployment.tensor_parallel, "audio_config")
    return attention(in_some_layers)(config, deployment)


def gemma_3n(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Gemma 3n. The last ``num_kv_shared_layers``, if any, reuse the keys and
    values of earlier ones."""
    text = config.text
    layers = attention(in_some_layers)(config, deployment)
    first = text.num_layers - (text.optional_count("num_kv_shared_layers") or 0)

    def reuses(index: int, window: int | None) -> bool:
        return index >= first and first >= (1 if window is None else 2)

    return [() if reuses(index, layer[0].window) else layer for index, layer in enumerate(layers)]


def without_reused(text: Fields, layers: Layers) -> Layers:
    """Return the layers. The last ``num_kv_shared_layers`` keep nothing."""
    shared = text.optional_count("num_kv_shared_layers") or 0
    if shared >= text.num_layers:
        raise ConfigError(
            f"{text.source}: num_kv_shared_layers is {shared} of {text.num_layers} layers; at least"
            " one layer must keep its own KV cache"
        )
    return [*layers[: text.num_layers - shared], *[()] * shared]


def gemma_4(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Gemma 4. Full attention has other heads than windows, and the last
    layers reuse the keys and values of earlier ones."""
    text = config.text
    layers: Layers = [
        (attention_layer(config, deployment, window, fields=text.layer(index)),)
        for index, window in enumerate(in_some_layers(text))
    ]
    return without_reused(text, layers)


def step_3p5(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Step 3.5, whose windows have more query heads than full attention."""
    text, windows = config.text, in_some_layers(config.text)
    heads = text.count("num_attention_groups")
    return [
        (
            attention_layer(
                config, deployment, window, total_kv_heads=heads, fields=text.layer(index)
            ),
        )
        for index, window in enumerate(windows)
    ]


def mimo_v2(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of MiMo V2. Windows have their own KV heads and sizes, and values are
    smaller than keys."""
    text = config.text
    window = text.count("sliding_window_size")
    pattern = text.of_layers("hybrid_layer_pattern", text.counts("hybrid_layer_pattern") or [])

    def layer(prefix: str, window: int | None) -> LayerCache:
        heads = text.optional_count(f"{prefix}num_key_value_heads")
        key = text.count(f"{prefix}head_dim")
        both = key + text.count(f"{prefix}v_head_dim", key)
        kept = kv_heads(text, deployment.tensor_parallel, heads)
        kind: Kind = "full_attention" if window is None else "sliding_window"
        content = kept * both * cache_bytes(config, deployment)
        return LayerCache(kind, content, layout=(kept, both), window=window)

    kinds = layer("", None), layer("swa_", window)
    return [(kinds[is_window != 0],) for is_window in pattern]


def multi_query(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of StarCoder: one KV head by default."""
    text = config.text
    heads = 1 if text.flag("multi_query") else text.count("num_attention_heads")
    return [(attention_layer(config, deployment, total_kv_heads=heads),)] * text.num_layers


def falcon(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Falcon: one KV head, or the number that newer models name.

    vLLM gives them the model's precision, or fp8 if the checkpoint has a scheme of LLM Compressor.
    It does not read how the cache is configured.
    """
    scheme = config.quantization.is_scheme and config.quantization.cache_dtype
    text, unquantized = config.text, replace(deployment, cache_dtype=scheme or AUTO)
    if not text.flag("new_decoder_architecture"):
        return multi_query(config, unquantized)
    heads = text.count("num_kv_heads", text.count("num_attention_heads"))
    return [(attention_layer(config, unquantized, total_kv_heads=heads),)] * text.num_layers


def minimax_m3(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of MiniMax M3. Sparse attention has an indexer, whose keys are in the
    model's own precision."""
    sparse = config.text.part("sparse_attention_config")
    frequency = sparse.counts("sparse_attention_freq") or []
    size = sparse.count("sparse_index_dim")
    keys = LayerCache("full_attention", size * element_bytes(config.dtype), layout=(1, size))
    own = attention_layer(config, deployment)
    return [
        (own, keys) if is_sparse else (own,)
        for is_sparse in config.text.of_layers("sparse_attention_freq", frequency)
    ]


def minicpm_3(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of MiniCPM 3: latent attention that keeps keys and values for all heads."""
    text = config.text
    heads = text.count("num_attention_heads")
    size = text.count("qk_nope_head_dim") + text.count("qk_rope_head_dim")
    layer = attention_layer(config, deployment, total_kv_heads=heads, size=size)
    return [(layer,)] * text.num_layers


def llama_4(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of Llama 4. Layers with rotary positions attend inside a chunk, the others
    to all tokens."""
    text = config.text
    layers = text.num_layers
    chunk = text.optional_count("attention_chunk_size")
    rotary = text.counts("no_rope_layers") or []
    if not rotary:
        period = text.count("no_rope_layer_interval")
        rotary = [int((layer + 1) % period != 0) for layer in range(layers)]
    return [
        (attention_layer(config, deployment, chunk if has else None, "chunked_local_attention"),)
        for has in text.of_layers("no_rope_layers", rotary)
    ]
