"""The longest sequence of a model, as its configuration says."""

from collections.abc import Mapping
from typing import Any, Final

from kvoxide._core import ConfigError
from kvoxide.model.config import Config, Fields

_FIELDS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# Of these, max_position_embeddings counts the stretched positions already.
_STRETCHED_ALREADY: Final = (
    "su",
    "longrope",
    "llama3",
    "yarn",
    "deepseek_yarn",
    "deepseek_llama_scaling",
)
_MAX_FACTOR: Final = 1_000_000
# vLLM's, where the configuration does not say.
_UNKNOWN: Final = 2048


def max_model_len(config: Config, wanted: int | None) -> int:
    """The longest sequence in tokens: ``wanted``, or else what the configuration says.

    Raises :class:`~kvoxide.ConfigError` if more is wanted than the model has.
    """
    text = config.text
    said = [text.count(name) for name in _FIELDS if name in text]
    longest = text.optional_count("model_max_length") or min(said, default=_UNKNOWN)
    scaling = _scaling(text)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    is_gemma_3 = "gemma3" in str(text.values.get("model_type"))
    if kind not in _STRETCHED_ALREADY and not is_gemma_3:
        longest = int(longest * _factor(text, scaling))
    if wanted is None:
        original = text.values.get("original_max_position_embeddings")
        return original if kind in ("su", "longrope") and isinstance(original, int) else longest
    if wanted > longest:
        raise ConfigError(f"max_model_len is {wanted:,}; the model has at most {longest:,} tokens")
    return wanted


def _factor(text: Fields, scaling: Mapping[str, Any]) -> float:
    factor = scaling.get("factor")
    if factor is None:
        return 1
    if not isinstance(factor, int | float) or not 0 < factor <= _MAX_FACTOR:
        raise ConfigError(f"{text.source}: the factor of rope_scaling is {factor!r}")
    return factor


def _scaling(text: Fields) -> Mapping[str, Any]:
    """How rotary positions are stretched. Where layers differ, that of any that is stretched."""
    for name in ("rope_scaling", "rope_parameters"):
        value = text.values.get(name)
        if not isinstance(value, Mapping):
            continue
        parts = [each for each in value.values() if isinstance(each, Mapping)] or [value]
        return next((each for each in parts if each.get("factor")), parts[0])
    return {}
