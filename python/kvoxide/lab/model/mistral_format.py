"""Reads Mistral's own format of a configuration, ``params.json``, as vLLM does.

Its fields get their usual names. A ``config.json`` in the same folder adds missing fields.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.fields import MAX_LAYERS
from kvoxide.lab.model.folder import CONFIG, read_beside
from kvoxide.lab.model.release import NEXT_STEP

_NAMES: Final = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "hidden_dim": "intermediate_size",
}
# The length if neither file has one.
_MAX_POSITIONS: Final = 128_000
_YARN: Final = {
    "factor": "factor",
    "original_max_position_embeddings": "original_max_position_embeddings",
    "beta": "beta_fast",
    "alpha": "beta_slow",
}


def is_mistral_format(values: Mapping[str, Any]) -> bool:
    """Return whether ``values`` have the names of Mistral's own format."""
    return "architectures" not in values and "n_layers" in values


def from_mistral_format(file: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same configuration in the form of ``config.json``.

    A list of windows is repeated over the layers; null in it is full attention. Raises
    :class:`~kvoxide.ConfigError` for fields that vLLM does not read.
    """
    source = str(file)
    other = read_beside(file, CONFIG) or {}
    config = {_NAMES.get(name, name): value for name, value in values.items()}
    if config.get("max_position_embeddings") is None:
        config["max_position_embeddings"] = _length_in(other)
    config.setdefault("max_seq_len", config["max_position_embeddings"])
    config.setdefault("model_type", "transformer")
    _read_window(source, config)
    _read_yarn(source, config)
    config["quantization_config"] = _quantization(source, config.pop("quantization", None))
    config["architectures"] = [_architecture(config)]
    if _has_vision(config):
        return _seeing(config)
    for name, value in other.items():
        config.setdefault(name, value)
    return config


def _length_in(other: Mapping[str, Any]) -> int:
    """Return the length in the ``config.json``."""
    text = other.get("text_config", other)
    found = text.get("max_position_embeddings") if isinstance(text, Mapping) else None
    return found if isinstance(found, int) and found > 0 else _MAX_POSITIONS


def _read_window(source: str, config: dict[str, Any]) -> None:
    window, layers = config.get("sliding_window"), config.get("num_hidden_layers")
    if not window:
        return
    windows = window if isinstance(window, list) else [window]
    sizes = {each for each in windows if each is not None}
    if not isinstance(layers, int) or not 0 < layers <= MAX_LAYERS or len(sizes) > 1:
        raise ConfigError(
            f"{source}: sliding_window is {window}; expected one window size for some of the layers"
        )
    if isinstance(window, list) or config.get("layer_types") is None:
        kinds = ["full_attention" if each is None else "sliding_attention" for each in windows]
        config["layer_types"] = kinds * (layers // len(windows))
    config["sliding_window"] = sizes.pop() if sizes else None


def _read_yarn(source: str, config: dict[str, Any]) -> None:
    yarn = config.get("yarn")
    if not yarn:
        return
    if not isinstance(yarn, Mapping) or not set(yarn) <= {*_YARN, "apply_scale"}:
        raise ConfigError(f"{source}: yarn is {yarn!r}; expected {', '.join(_YARN)}")
    rope = {_YARN[name]: value for name, value in yarn.items() if name in _YARN}
    if theta := config.pop("rope_theta", None):
        rope["rope_theta"] = theta
    config["rope_parameters"] = {"rope_type": "yarn", **rope}


def _quantization(source: str, quantization: Any) -> Mapping[str, Any] | None:  # noqa: ANN401
    if not quantization:
        return None
    if isinstance(quantization, Mapping):
        if quantization.get("qformat_weight") == "fp8_e4m3":
            return {"quant_method": "fp8"}
        method = str(quantization.get("quant_method", "")).lower().replace("_", "-")
        if method == "compressed-tensors":
            return {**quantization, "quant_method": method}
    raise ConfigError(f"{source}: vLLM refuses it: Found unknown quantization={quantization!r}")


def _architecture(config: Mapping[str, Any]) -> str:
    if config.get("model_type") == "mamba":
        return "Mamba2ForCausalLM"
    experts = config.get("moe")
    if config.get("qk_nope_head_dim"):
        experts = experts or {"num_shared_experts": 1}
    if not experts:
        return "MistralForCausalLM"
    shared = isinstance(experts, Mapping) and experts.get("num_shared_experts")
    return "MistralLarge3ForCausalLM" if shared else "MixtralForCausalLM"


def _has_vision(config: Mapping[str, Any]) -> bool:
    multimodal = config.get("multimodal") or {}
    if isinstance(multimodal, Mapping) and multimodal.get("whisper_model_args"):
        raise ConfigError(
            f"kvoxide does not know models for audio in Mistral's own format. {NEXT_STEP}"
        )
    return bool(config.get("vision_encoder")) or bool(multimodal)


def _seeing(config: dict[str, Any]) -> dict[str, Any]:
    vision = config.pop("vision_encoder", None) or config.pop("multimodal")
    quantization = config.get("quantization_config")
    return {
        "model_type": "pixtral",
        "architectures": ["PixtralForConditionalGeneration"],
        "text_config": config,
        "vision_config": vision,
        "quantization_config": quantization,
    }
