"""Mistral's own format of a configuration, ``params.json``, under the usual names of its fields."""

from collections.abc import Mapping
from typing import Any, Final

from kvoxide._core import ConfigError

_NAMES: Final = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
}
# What vLLM assumes where the file does not say.
_MAX_POSITIONS: Final = 128_000


def from_mistral_format(source: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The same configuration as ``config.json`` would have it. ``source`` is for messages.

    A list as window is repeated over the layers; null in it is full attention. Raises
    :class:`~kvoxide.ConfigError` if there are several windows.
    """
    config = {_NAMES.get(name, name): value for name, value in values.items()}
    config.setdefault("max_position_embeddings", _MAX_POSITIONS)
    config.setdefault("max_seq_len", config["max_position_embeddings"])
    config["architectures"] = [_architecture(config)]
    config["model_type"] = "transformer"
    window = config.get("sliding_window")
    if isinstance(window, list):
        layers = config["num_hidden_layers"]
        windows = {each for each in window if each is not None}
        if len(windows) != 1 or not isinstance(layers, int):
            raise ConfigError(
                f"{source}: sliding_window {window} is not one window for some layers"
            )
        kinds = ["full_attention" if each is None else "sliding_attention" for each in window]
        config["layer_types"] = kinds * (layers // len(window))
        config["sliding_window"] = windows.pop()
    return config


def _architecture(config: Mapping[str, Any]) -> str:
    experts = config.get("moe")
    if not isinstance(experts, Mapping):
        return "MistralForCausalLM"
    return "MistralLarge3ForCausalLM" if experts.get("num_shared_experts") else "MixtralForCausalLM"
