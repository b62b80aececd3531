"""Derives the longest sequence of a model from the configuration, as vLLM does."""

from typing import Final

from kvoxide._core import ConfigError
from kvoxide.lab.model import rope
from kvoxide.lab.model.config import Config
from kvoxide.lab.model.fields import Fields

_FIELDS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# For these types, max_position_embeddings already counts the stretched positions.
_STRETCHED_ALREADY: Final = (
    "su",
    "longrope",
    "llama3",
    "yarn",
    "deepseek_yarn",
    "deepseek_llama_scaling",
)
_MAX_FACTOR: Final = 1_000_000
# vLLM's length if the class of the configuration has no field for it.
_UNKNOWN: Final = 2048


def max_model_len(config: Config, wanted: int | None) -> int:
    """Return the longest sequence in tokens: ``wanted``, or by default the length in the
    configuration.

    Raises :class:`~kvoxide.ConfigError` if ``wanted`` is longer than the model's.
    """
    text = config.text
    longest = int(_longest(text) * _factor(text))
    if wanted is None:
        return _by_default(text, longest)
    if wanted > longest:
        raise ConfigError(
            f"max_model_len is {wanted:,}; this model allows at most {longest:,} tokens"
        )
    return wanted


def _longest(text: Fields) -> int:
    """Return the length before rotary positions stretch it."""
    said = [text.count(name) for name in _FIELDS if text.has(name) and name in text]
    if not said and not text.is_whole:
        raise ConfigError(text.missing("max_position_embeddings"))
    if text.has("model_max_length") and text.get("model_max_length"):
        return text.count("model_max_length")
    return min(said, default=_UNKNOWN)


def _factor(text: Fields) -> float:
    """Return the factor by which rotary positions stretch the length. The last kind of layer
    counts."""
    if "gemma3" in str(getattr(text.values, "model_type", "")):
        return 1
    found: object = 1
    for part in rope.parameters_of(text.values):
        if part.get("rope_type") not in _STRETCHED_ALREADY:
            found = part.get("factor", found)
    if found is None:
        return 1
    if not isinstance(found, int | float) or not 0 < found <= _MAX_FACTOR:
        raise ConfigError(
            f"{text.source}: the factor of rope_scaling is {found!r}; it must be a number above 0"
            f" and at most {_MAX_FACTOR:,}"
        )
    return found


def _by_default(text: Fields, longest: int) -> int:
    name = "original_max_position_embeddings"
    if "longrope" in rope.types_of(text.values) and text.has(name):
        return text.count(name)
    return longest
