"""Rotary positions for which vLLM builds no model."""

from collections.abc import Mapping
from typing import Any, Final

from kvoxide._core import ConfigError
from kvoxide.lab.model import rope
from kvoxide.lab.model.families.sharding import head_size
from kvoxide.lab.model.fields import Fields

_DEFAULT: Final = "default"
_WITH_FACTOR: Final = ("linear", "dynamic", "yarn", "llama3", "deepseek_yarn")
_WITH_SECTIONS: Final = (_DEFAULT, "yarn")
_TYPES: Final = (
    *_WITH_FACTOR,
    _DEFAULT,
    "ntk",
    "longrope",
    "proportional",
    "deepseek_llama_scaling",
    "bailing_mrope",
    "mllama4",
    "openpangu",
)


def require_rotary(text: Fields) -> None:
    """Raise :class:`~kvoxide.ConfigError` for rotary positions that vLLM does not compute."""
    for part in rope.parameters_of(text.values):
        kind = part.get("rope_type", _DEFAULT)
        if kind not in _TYPES:
            raise ConfigError(
                f"{text.source}: rope_type is {kind!r}, which vLLM does not know; it can be"
                f" {', '.join(sorted(_TYPES))}"
            )
        _require_positive(text, part, "rope_theta")
        if kind in _WITH_FACTOR:
            _require_positive(text, part, "factor")
        if kind in _WITH_SECTIONS:
            _require_sections(text, part)


def _require_positive(text: Fields, part: Mapping[str, Any], name: str) -> None:
    value = part.get(name)
    # Without the class of the configuration, Transformers sets null for values that the file lacks.
    if name not in part or (value is None and not text.is_whole):
        return
    if not isinstance(value, int | float) or value <= 0:
        raise ConfigError(
            f"{text.source}: {name} of the rotary positions is {value!r}; it must be a number above"
            " 0"
        )


def _require_sections(text: Fields, part: Mapping[str, Any]) -> None:
    """Raise an error unless the sections fill the rotary part of a head. They are the sections of a
    text's positions, and of an image's height and width."""
    sections, share = part.get("mrope_section"), part.get("partial_rotary_factor", 1.0)
    if not isinstance(sections, list | tuple) or not all(type(each) is int for each in sections):
        return
    if "rope_dim" in part or not isinstance(share, int | float):
        return
    rotary = int(head_size(text) * share)
    if sum(sections) != rotary // 2:
        raise ConfigError(
            f"{text.source}: mrope_section is {list(sections)}; its sum must be {rotary // 2}, half"
            f" the {rotary} rotary elements of a head. If the heads have another size, add head_dim"
            " to the file"
        )
