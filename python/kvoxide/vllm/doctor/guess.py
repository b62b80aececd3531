"""Which kinds of KV cache groups a model of an unknown class may have, from the usual fields of
its ``config.json``.

vLLM decides this when it builds the model; what is told of a class that nobody here knows is a
guess where it says so.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from kvoxide.vllm.doctor.model_group import ModelGroup

_LAYER_TYPES: Final = {
    "full_attention": "full_attention",
    "attention": "full_attention",
    "sliding_attention": "sliding_window",
    "chunked_attention": "chunked_local_attention",
    "linear_attention": "mamba",
    "mamba": "mamba",
    "mamba2": "mamba",
    "conv": "mamba",
    "recurrent": "mamba",
    # Nemotron-H's pattern of letters.
    "M": "mamba",
    "*": "full_attention",
}
_WITHOUT_CACHE: Final = ("mlp", "moe", "-", "E", "|")
_BOTH: Final = "hybrid"
_STATE_SPACE_FIELDS: Final = (
    "hybrid_override_pattern",
    "linear_num_value_heads",
    "mamba_d_state",
    "mamba_state_dim",
    "ssm_cfg",
    "ssm_state_size",
    "state_size",
    "time_mix_extra_dim",
)
_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config")


def guessed_groups(config: Mapping[str, Any]) -> list[ModelGroup]:
    """The kinds that a configuration leads to, in the order of their first layer."""
    text = _text_config(config)
    groups = (
        _by_layer_types(text)
        or _by_lists_of_layers(text)
        or _by_interval(text)
        or _state_space(text)
        or _attention(text)
    )
    if config.get("is_encoder_decoder"):
        layers = groups[0].layers
        groups.append(ModelGroup("cross_attention", layers, "is_encoder_decoder", False))
    return groups


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in _NESTED:
        if isinstance(config.get(name), dict):
            return _text_config(config[name])
    return config


def _by_layer_types(config: Mapping[str, Any]) -> list[ModelGroup]:
    for field in ("layer_types", "layers_block_type", "hybrid_override_pattern"):
        types = config.get(field)
        if isinstance(types, list | str) and types:
            names = [name for each in types for name in _parts(str(each))]
            counts = Counter(name for name in names if name not in _WITHOUT_CACHE)
            return [_layer_type(config, field, name, count) for name, count in counts.items()]
    return []


def _parts(layer_type: str) -> list[str]:
    """A layer of both has a cache of each."""
    return ["mamba", "attention"] if layer_type == _BOTH else [layer_type]


def _by_lists_of_layers(config: Mapping[str, Any]) -> list[ModelGroup]:
    """Kimi-Linear and LFM2 list which layers are of a kind."""
    linear = config.get("linear_attn_config")
    field, kda, full = "linear_attn_config", None, None
    if isinstance(linear, Mapping):
        kda, full = linear.get("kda_layers"), linear.get("full_attn_layers")
    elif isinstance(config.get("full_attn_idxs"), list):
        field, full = "full_attn_idxs", config["full_attn_idxs"]
        kda = [layer for layer in range(_number_of_layers(config) or 0) if layer not in full]
    counts = {"linear_attention": kda, "full_attention": full}
    return [
        _layer_type(config, field, name, len(layers))
        for name, layers in counts.items()
        if isinstance(layers, list) and layers
    ]


def _by_interval(config: Mapping[str, Any]) -> list[ModelGroup]:
    """Qwen3-Next says every how many layers one is full attention."""
    field = "full_attention_interval"
    interval, layers = config.get(field), _number_of_layers(config)
    if not isinstance(interval, int) or interval < 1 or layers is None:
        return []
    full = layers // interval
    counts = {"linear_attention": layers - full, "full_attention": full}
    return [_layer_type(config, field, name, count) for name, count in counts.items() if count]


def _layer_type(config: Mapping[str, Any], field: str, name: str, layers: int) -> ModelGroup:
    kind = _LAYER_TYPES.get(name)
    if kind is None:
        return ModelGroup(name, layers, f"{field} names {name!r}, unknown here", True)
    if _has_latent_attention(config) and kind in ("full_attention", "sliding_window"):
        mla = "mla_attention" if kind == "full_attention" else "sliding_window_mla"
        return ModelGroup(mla, layers, f"{field} and kv_lora_rank", True)
    return ModelGroup(kind, layers, field, False)


def _has_latent_attention(config: Mapping[str, Any]) -> bool:
    return bool(config.get("kv_lora_rank"))


def _state_space(config: Mapping[str, Any]) -> list[ModelGroup]:
    model_type = str(config.get("model_type", ""))
    fields = [name for name in _STATE_SPACE_FIELDS if config.get(name)]
    if not fields and not any(word in model_type for word in ("mamba", "rwkv")):
        return []
    because = ", ".join(fields) or f"model_type {model_type}"
    # Falcon-H1 has both in every layer; of others only vLLM knows.
    layers = _number_of_layers(config) if model_type == "falcon_h1" else None
    groups = [ModelGroup("mamba", layers, because, True)]
    if config.get("num_attention_heads"):
        groups.append(ModelGroup("full_attention", layers, "num_attention_heads", True))
    return groups


def _attention(config: Mapping[str, Any]) -> list[ModelGroup]:
    layers = _number_of_layers(config)
    if _has_latent_attention(config):
        return [ModelGroup("mla_attention", layers, "kv_lora_rank", False)]
    if config.get("attention_chunk_size"):
        return _mixed("chunked_local_attention", "attention_chunk_size", layers, _period(config, 4))
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        return _mixed("sliding_window", "sliding_window", layers, _period(config, 0))
    return [ModelGroup("full_attention", layers, "no window, chunks or latent attention", False)]


def _number_of_layers(config: Mapping[str, Any]) -> int | None:
    decoder = config.get("decoder_layers") if config.get("is_encoder_decoder") else None
    layers = decoder or config.get("num_hidden_layers")
    return layers if isinstance(layers, int) else None


def _period(config: Mapping[str, Any], default: int) -> int:
    """Every how many layers one is full attention; 0 for never."""
    period = (
        config.get("sliding_window_pattern")
        or config.get("_sliding_window_pattern")
        or config.get("no_rope_layer_interval")
    )
    if config.get("model_type") == "gemma2":
        return 2
    return period if isinstance(period, int) and period > 0 else default


def _mixed(kind: str, field: str, layers: int | None, period: int) -> list[ModelGroup]:
    if not period:
        return [ModelGroup(kind, layers, field, True)]
    full = None if layers is None else layers // period
    local = None if layers is None or full is None else layers - full
    because = f"{field}, one layer of {period} is full attention"
    return [
        ModelGroup(kind, local, because, True),
        ModelGroup("full_attention", full, because, True),
    ]
