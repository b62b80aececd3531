"""Gives the parameters of rotary positions their present names, as vLLM does before it reads
the model's length.

Older files use other names: ``type`` for ``rope_type``, and old names of types.
"""

from collections.abc import Iterator, Mapping
from math import log
from typing import Any, Final

from kvoxide._core import ConfigError

_THETA: Final = ("rope_theta", "rotary_emb_base")
_PARTIAL: Final = ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction")
# DeepSeek V4's keys, in addition to the kinds of layers.
_BY_ROPE: Final = ("main", "compress")
_TELECHAT: Final = "telechat3-yarn"
_OBJECTS: Final = ("rope_parameters", "rope_scaling")
_ORIGINAL: Final = "original_max_position_embeddings"
_READING_ORIGINAL: Final = {"yarn", "deepseek_yarn", "llama3", "longrope", "su", _TELECHAT}


def use_present_names(config: Any) -> None:  # noqa: ANN401
    """Give the fields of a configuration's rotary positions their present names.

    Raises what Transformers raises for values that it does not know.
    """
    theta, partial = _first(config, _THETA), _first(config, _PARTIAL)
    if theta is None and not getattr(config, "rope_parameters", None):
        return
    if theta is not None:
        config.rope_theta = theta
    if partial is not None:
        config.partial_rotary_factor = partial
    for parameters in _parts(getattr(config, "rope_parameters", None)):
        _rename(parameters)
    config.standardize_rope_params()
    config.validate_rope()


def require_lengths(source: str, values: Mapping[str, Any]) -> None:
    """Raise :class:`~kvoxide.ConfigError` for an original length in the ``values`` of a file that
    is no number above 0, where it is read."""
    for name, part in _written(values):
        value = part.get(_ORIGINAL)
        reads = {part.get("rope_type"), part.get("type")} & _READING_ORIGINAL
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        if reads and value is not None and not is_number:
            raise ConfigError(
                f"{source}: {_ORIGINAL} of {name} is {value!r}; it must be a number of tokens above"
                f" 0, such as 4096. Correct {_ORIGINAL} in the file"
            )


def _written(values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the objects that a file has for rotary positions, with their names."""
    for name, value in values.items():
        if name in _OBJECTS and isinstance(value, Mapping):
            yield name, value
            parts = ((f"{name}.{kind}", part) for kind, part in value.items())
            yield from ((kind, part) for kind, part in parts if isinstance(part, Mapping))


def parameters_of(config: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401
    """Return the parameters of rotary positions, one object for each kind of layer."""
    return [part for part in _parts(getattr(config, "rope_parameters", None)) if part]


def types_of(config: Any) -> list[Any]:  # noqa: ANN401
    """Return the types of rotary positions, one for each kind of layer."""
    return [part.get("rope_type") for part in parameters_of(config)]


def _first(config: Any, names: tuple[str, ...]) -> Any:  # noqa: ANN401
    return next((getattr(config, name) for name in names if hasattr(config, name)), None)


def _parts(parameters: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    if not isinstance(parameters, dict) or not parameters:
        return
    from transformers.configuration_utils import ALLOWED_LAYER_TYPES

    if set(parameters) <= {*ALLOWED_LAYER_TYPES, *_BY_ROPE}:
        yield from (part for part in parameters.values() if isinstance(part, dict))
    else:
        yield parameters


def _rename(parameters: dict[str, Any]) -> None:
    kind, older = parameters.get("rope_type"), parameters.get("type")
    both = kind is not None and older is not None and kind != older
    if both and (older, kind) not in (("su", "longrope"), ("mrope", "default")):
        raise ValueError(f"rope_type is {kind}, but type is {older}; they contradict each other")
    kind = older if kind is None else kind
    if kind is None:
        return
    parameters["rope_type"] = kind
    if kind == "su":
        parameters["rope_type"] = "longrope"
    elif kind == "mrope":
        if "mrope_section" not in parameters:
            raise ValueError("rope_type is mrope, but mrope_section is missing")
        parameters["rope_type"] = "default"
    elif kind == _TELECHAT:
        parameters["rope_type"] = "yarn"
        parameters["attention_factor"] = 0.07 * log(parameters["factor"]) + 1.0
        parameters.pop("type", None)
