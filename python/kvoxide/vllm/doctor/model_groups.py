"""Which kinds of KV cache groups a model will have, from its ``config.json``.

vLLM decides this when it builds the model; what can be told before from the usual fields of a
configuration is a guess where it says so.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvoxide.vllm.environment import native_kinds


class ModelError(ValueError):
    """There is no readable ``config.json`` in the directory of a model."""


@dataclass(frozen=True)
class ModelGroup:
    """Layers of one kind. ``layers`` is None where the configuration does not tell."""

    kind: str
    layers: int | None
    because: str
    is_guess: bool

    @property
    def is_native(self) -> bool:
        """Whether kvoxide manages groups of this kind."""
        return self.kind in native_kinds()


_LAYER_TYPES: Final = {
    "full_attention": "full_attention",
    "attention": "full_attention",
    "sliding_attention": "sliding_window",
    "chunked_attention": "chunked_local_attention",
    "linear_attention": "mamba",
    "mamba": "mamba",
    "conv": "mamba",
    "recurrent": "mamba",
}
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


def read_model_groups(directory: Path) -> list[ModelGroup]:
    """The kinds of a model. Raises :class:`ModelError`."""
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ModelError(f"{path} holds no JSON object")
    return model_groups(config)


def model_groups(config: Mapping[str, Any]) -> list[ModelGroup]:
    """The kinds that a configuration leads to, in the order of their first layer."""
    text = _text_config(config)
    groups = _by_layer_types(text) or _state_space(text) or _attention(text)
    if config.get("is_encoder_decoder"):
        groups.append(ModelGroup("cross_attention", None, "is_encoder_decoder", False))
    return groups


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in _NESTED:
        if isinstance(config.get(name), dict):
            return _text_config(config[name])
    return config


def _by_layer_types(config: Mapping[str, Any]) -> list[ModelGroup]:
    for field in ("layer_types", "layers_block_type"):
        types = config.get(field)
        if isinstance(types, list) and types:
            counts = Counter(map(str, types))
            return [_layer_type(config, field, name, count) for name, count in counts.items()]
    return []


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
    groups = [ModelGroup("mamba", None, because, True)]
    if config.get("num_attention_heads"):
        groups.append(ModelGroup("full_attention", None, "num_attention_heads", True))
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
    layers = config.get("num_hidden_layers")
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
