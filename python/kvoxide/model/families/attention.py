"""Models whose layers all keep keys and values: in full, in a sliding window, or in a chunk."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kvoxide._core import ConfigError
from kvoxide.model.config import Config, Fields
from kvoxide.model.deployment import Deployment
from kvoxide.model.families.sharding import head_size, kv_heads, share
from kvoxide.model.layers import Kind, LayerCache, Layers
from kvoxide.model.precision import AUTO, element_bytes
from kvoxide.model.quantization import NVFP4

Windows = Callable[[Fields], Sequence[int | None]]
SLIDING: Final = "sliding_attention"
_KINDS: Final = (SLIDING, "full_attention")
# What FlashInfer's kernels take on Hopper; one byte for the scale of so many elements.
_NVFP4_HEADS: Final = (128, 256)
_ELEMENTS_OF_A_SCALE: Final = 16


def cache_bytes(config: Config, deployment: Deployment) -> int:
    """Bytes of one element of a key or a value."""
    return element_bytes(config.dtype if deployment.cache_dtype == AUTO else deployment.cache_dtype)


def attention_layer(
    config: Config,
    deployment: Deployment,
    window: int | None = None,
    kind: Kind = "sliding_window",
    total_kv_heads: int | None = None,
    size: int | None = None,
) -> LayerCache:
    """A layer with a key and a value for each token; full attention without a ``window``.

    ``total_kv_heads`` and ``size`` of a head are the configuration's unless they are given.
    """
    heads = kv_heads(config.text, deployment.tensor_parallel, total_kv_heads)
    size = size or head_size(config.text)
    content = 2 * heads * _head_bytes(size, config, deployment)
    kind = "full_attention" if window is None else kind
    return LayerCache(kind, content, layout=(heads, size), window=window)


def _head_bytes(size: int, config: Config, deployment: Deployment) -> int:
    """Bytes of the key or the value of a head."""
    if deployment.cache_dtype != NVFP4:
        return size * cache_bytes(config, deployment)
    if size not in _NVFP4_HEADS or not config.is_text:
        raise ConfigError(
            f"the checkpoint's KV cache is in nvfp4, which on a Hopper GPU is known here for text"
            f" models with heads of {_NVFP4_HEADS}; {config.architecture} has heads of {size}."
            " --kv-cache-dtype names another precision, or ask vLLM where it is installed"
        )
    return size // 2 + size // _ELEMENTS_OF_A_SCALE


def attention(windows: Windows) -> Callable[[Config, Deployment], Layers]:
    """Layers that differ by nothing but their windows; the last may reuse the keys and values of
    earlier ones."""

    def layers(config: Config, deployment: Deployment) -> Layers:
        text = config.text
        each = [(attention_layer(config, deployment, window),) for window in windows(text)]
        return without_reused(text, each)

    return layers


def glm_v(config: Config, deployment: Deployment) -> Layers:
    """GLM-4V, whose encoder's heads are shared by the ranks too."""
    share(config.vision.count("num_heads"), deployment.tensor_parallel, "heads of the encoder")
    return attention(listed_windows)(config, deployment)


def without_reused(text: Fields, layers: Sequence[tuple[LayerCache, ...]]) -> Layers:
    """The layers, of which the last ``num_kv_shared_layers`` keep nothing: they reuse the keys and
    values of earlier ones."""
    shared = text.optional_count("num_kv_shared_layers") or 0
    if shared >= text.num_layers:
        raise ConfigError(
            f"{text.source}: num_kv_shared_layers is {shared} of {text.num_layers} layers; one at"
            " least keeps its own"
        )
    return [*layers[: text.num_layers - shared], *[()] * shared]


def listed_windows(text: Fields) -> list[int | None]:
    """As ``layer_types`` says; without it, every layer has the model's window, if it has one."""
    kinds = text.kinds(_KINDS)
    if kinds is None:
        return [text.optional_count("sliding_window")] * text.num_layers
    return [text.count("sliding_window") if kind == SLIDING else None for kind in kinds]


def qwen_windows(text: Fields) -> list[int | None]:
    """A window in every layer, or in none: vLLM does not run Qwen with windows in some layers."""
    layers = text.num_layers
    if not text.flag("use_sliding_window"):
        return [None] * layers
    if 0 < text.count("max_window_layers", layers) < layers:
        raise ConfigError(
            f"{text.source}: max_window_layers leaves windows in some layers, which vLLM does not"
            " run for this model"
        )
    return [text.count("sliding_window")] * layers


def full_every(period: int | None = None, extra: int = 0) -> Windows:
    """One layer of ``period``, the last of them, is full attention, unless ``layer_types`` says
    otherwise. Without a ``period`` it is the configuration's ``sliding_window_pattern``. ``extra``
    tokens are added to the window."""

    def windows(text: Fields) -> list[int | None]:
        kinds = text.kinds(_KINDS)
        if kinds is None:
            every = period or _pattern(text)
            numbers = range(1, text.num_layers + 1)
            kinds = [SLIDING if number % every else "full_attention" for number in numbers]
        window = text.optional_count("sliding_window")
        return [window + extra if window and kind == SLIDING else None for kind in kinds]

    return windows


def _pattern(text: Fields) -> int:
    """``sliding_window_pattern``, a number or letters such as LLLG."""
    for name in ("sliding_window_pattern", "_sliding_window_pattern"):
        value = text.values.get(name)
        if isinstance(value, str) and value:
            return len(value)
        if value is not None:
            return text.count(name)
    raise ConfigError(f"{text.source} has neither layer_types nor sliding_window_pattern")


def gpt_oss_windows(text: Fields) -> list[int | None]:
    """A window in every other layer, beginning with the first."""
    window = text.count("sliding_window")
    return [None if layer % 2 else window for layer in range(text.num_layers)]


def gemma_4(config: Config, deployment: Deployment) -> Layers:
    """Full attention has larger heads than windows, and the last layers reuse the keys and values
    of earlier ones."""
    text = config.text
    windows = list(full_every(period=6)(text))
    windows[-1] = None
    global_heads = text.optional_count("num_global_key_value_heads")
    in_full = attention_layer(
        config,
        deployment,
        total_kv_heads=global_heads if text.flag("attention_k_eq_v") else None,
        size=text.optional_count("global_head_dim"),
    )
    layers = [
        (in_full if window is None else attention_layer(config, deployment, window),)
        for window in windows
    ]
    return without_reused(text, layers)


def mimo_v2(config: Config, deployment: Deployment) -> Layers:
    """MiMo V2: windows have KV heads and sizes of their own, and values are smaller than keys."""
    text = config.text
    window = text.count("sliding_window")
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
    """StarCoder: one KV head, unless the configuration says otherwise."""
    text = config.text
    heads = 1 if text.flag("multi_query") else text.count("num_attention_heads")
    return [(attention_layer(config, deployment, total_kv_heads=heads),)] * text.num_layers


def falcon(config: Config, deployment: Deployment) -> Layers:
    """As StarCoder, or as many KV heads as the newer models say, in the model's own precision."""
    text, unquantized = config.text, replace(deployment, cache_dtype=AUTO)
    if not text.flag("new_decoder_architecture"):
        return multi_query(config, unquantized)
    heads = text.count("num_kv_heads", text.count("num_attention_heads"))
    return [(attention_layer(config, unquantized, total_kv_heads=heads),)] * text.num_layers


def minimax_m3(config: Config, deployment: Deployment) -> Layers:
    """MiniMax M3: sparse attention has keys of an indexer beside, in the model's own precision."""
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
    """MiniCPM 3: latent attention whose keys and values are kept as those of all heads."""
    text = config.text
    heads = text.count("num_attention_heads")
    size = text.count("qk_nope_head_dim") + text.count("qk_rope_head_dim")
    layer = attention_layer(config, deployment, total_kv_heads=heads, size=size)
    return [(layer,)] * text.num_layers


def llama_4(config: Config, deployment: Deployment) -> Layers:
    """Layers with rotary positions attend inside a chunk, those without to everything."""
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
