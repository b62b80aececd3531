"""DeepSeek V4: windows, compressed tokens before them, and the states of the compressors."""

from typing import Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.config import Config
from kvoxide.lab.model.deployment import Deployment
from kvoxide.lab.model.families.latent import FLOAT32_BYTES, scaled
from kvoxide.lab.model.families.sharding import share
from kvoxide.lab.model.layers import LayerCache, Layers
from kvoxide.lab.model.precision import AUTO

# DeepSeek V4 packs a token: 448 elements in 8 bits, 64 in 16 bits, and scales. Its pages are whole
# lines of the kernels' copies.
_TOKEN: Final = 584
_LINE: Final = 576
_WINDOW_BLOCK: Final = 64
# A layer that compresses tokens keeps the tokens that are not compressed yet, in blocks as large as
# pages of compressed tokens. A group of four tokens overlaps the next four.
_STATE_BLOCKS: Final = {4: 4, 128: 8}
_OVERLAPPING: Final = 4
_RATIOS: Final = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}


def compressed(config: Config, deployment: Deployment) -> Layers:
    """Return the layers of DeepSeek V4.

    Each has a window. Most also have compressed tokens, and the state of their compressor. It
    compresses by 4, and an indexer chooses from the results, or by 128.
    """
    if deployment.cache_dtype not in (AUTO, "fp8", "fp8_e4m3"):
        raise ConfigError(f"cache_dtype is {deployment.cache_dtype}; DeepSeek V4 supports only fp8")
    text = config.text
    share(text.count("num_attention_heads"), deployment.tensor_parallel, "attention heads")
    layers = text.num_layers
    ratios = text.counts("compress_ratios") or _ratios_of_kinds(config)
    if len(ratios) < layers or not set(ratios) <= {0, 1, *_STATE_BLOCKS}:
        raise ConfigError(
            f"{text.source}: compress_ratios must have 0, 4 or 128 for each of the {layers} layers"
        )
    return [_v4_layer(config, ratio) for ratio in ratios[:layers]]


def _ratios_of_kinds(config: Config) -> list[int]:
    return [_RATIOS[kind] for kind in config.text.kinds(_RATIOS) or []]


def _v4_layer(config: Config, ratio: int) -> tuple[LayerCache, ...]:
    text = config.text
    window = LayerCache(
        "sliding_window_mla",
        _TOKEN,
        layout=("window",),
        window=text.count("sliding_window"),
        block_size=_WINDOW_BLOCK,
        page_multiple=_LINE,
    )
    if ratio <= 1:
        return (window,)
    tokens = LayerCache(
        "mla_attention",
        _TOKEN,
        layout=("compressed",),
        tokens_per_entry=ratio,
        page_multiple=_LINE,
    )
    state = _v4_state(text.count("head_dim"), ratio)
    if ratio != _OVERLAPPING:
        return (window, tokens, state)
    size = text.count("index_head_dim")
    keys = LayerCache(
        "mla_attention",
        scaled(size),
        layout=("indexer",),
        tokens_per_entry=ratio,
        page_multiple=_LINE,
    )
    return (window, keys, _v4_state(size, ratio), tokens, state)


def _v4_state(head_size: int, ratio: int) -> LayerCache:
    """Return the cache of a compressor's state: for each token that is being compressed, a key and
    a score in 32 bits. Both are stored twice if groups of tokens overlap."""
    groups = 2 if ratio == _OVERLAPPING else 1
    size = 2 * groups * head_size
    return LayerCache(
        "sliding_window_mla",
        size * FLOAT32_BYTES,
        layout=("state", size),
        window=groups * ratio,
        block_size=_STATE_BLOCKS[ratio],
        page_multiple=_LINE,
    )
