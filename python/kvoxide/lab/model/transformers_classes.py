"""Builds configurations with Transformers. It knows the defaults, other names and derived fields of
each type of model.

Only configuration code is imported, without PyTorch if that is not installed.
"""

import copy
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kvoxide._core import ConfigError
from kvoxide._install_hints import with_extra
from kvoxide.lab.model import rope
from kvoxide.lab.model.fields import MAX_LAYERS
from kvoxide.lab.model.refusals import refusal

_ADVICE: Final = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
# Fields that Transformers makes lists of.
_COUNTS: Final = re.compile(r"\w*layers?|depth|num_labels|\w*num_blocks")


def knows(model_type: str) -> bool:
    """Return whether Transformers has a configuration class for a ``model_type``."""
    return model_type in _auto().CONFIG_MAPPING_NAMES


def base_class(model_type: object) -> str | None:
    """Return the base class of models of a type; None if Transformers has none."""
    _auto()
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    name = MODEL_MAPPING_NAMES.get(model_type)
    return name if isinstance(name, str) else None


def build(source: str, values: Mapping[str, Any], model_type: str | None) -> Any:  # noqa: ANN401
    """Return the configuration of ``values``, with the fields that the class of ``model_type``
    adds.

    Without a ``model_type``, the result has exactly the given fields. Raises
    :class:`~kvoxide.ConfigError` if Transformers refuses the values.
    """
    auto = _auto()
    with _quietly():
        from transformers.configuration_utils import PreTrainedConfig

        # Only Transformers' own classes check the values when they are built.
        given: Any = type("Given", (PreTrainedConfig,), {})
        made = given if model_type is None else auto.CONFIG_MAPPING[model_type]
        try:
            config = made.from_dict(copy.deepcopy(dict(values)))
            _name_text_config(config)
            return config
        except Exception as error:
            raise refusal(source, error) from None


def text_config(source: str, config: Any) -> Any:  # noqa: ANN401
    """Return the part of a configuration that describes the language model."""
    try:
        return config.get_text_config()
    except ValueError as error:
        raise refusal(source, error) from None


def use_present_rope_names(source: str, *configs: Any) -> None:  # noqa: ANN401
    """Give the rotary positions of configurations the names that vLLM uses.

    Raises :class:`~kvoxide.ConfigError` for values that Transformers refuses.
    """
    with _quietly():
        for config in configs:
            try:
                rope.use_present_names(config)
            except Exception as error:
                raise refusal(source, error) from None


def require_sane(source: str, values: Mapping[str, Any]) -> None:
    """Raise :class:`~kvoxide.ConfigError` for a configuration that Transformers or vLLM cannot
    handle. It has more layers than any model, which Transformers would list one by one, or a
    quantization or rotary positions in another form than vLLM reads."""
    rope.require_lengths(source, values)
    quantization = values.get("quantization_config")
    if quantization is not None and not isinstance(quantization, Mapping):
        raise ConfigError(
            f"{source}: quantization_config is {str(quantization)[:80]!r}, which vLLM cannot read."
            ' Write an object, such as {"quant_method": "awq", ...}'
        )
    if isinstance(quantization, Mapping):
        method = quantization.get("quant_method", "")
        if not isinstance(method, str):
            raise ConfigError(
                f"{source}: quant_method is {method!r}, which vLLM cannot read. Write the name of a"
                ' method, such as "awq"'
            )
    for name, value in values.items():
        if isinstance(value, Mapping):
            require_sane(f"{source}: {name}", value)
        elif type(value) is int and value > MAX_LAYERS and _COUNTS.fullmatch(name):
            raise ConfigError(f"{source}: {name} is {value:,}; the limit is {MAX_LAYERS:,}")


def _name_text_config(config: Any) -> None:  # noqa: ANN401
    if hasattr(config, "llm_config") and not hasattr(config, "text_config"):
        config.text_config = config.llm_config


def _auto() -> Any:  # noqa: ANN401
    """Return the module of Transformers that maps types to classes.

    Raises :class:`~kvoxide.ConfigError` if Transformers is not installed.
    """
    given = os.environ.get(_ADVICE)
    os.environ[_ADVICE] = "1"
    try:
        from transformers.models.auto import configuration_auto
    except ImportError as error:
        raise ConfigError(
            f"cannot read the model's configuration: {error}; this needs Transformers;"
            f" {with_extra('cli')}"
        ) from None
    finally:
        if given is None:
            del os.environ[_ADVICE]
        else:
            os.environ[_ADVICE] = given
    return configuration_auto


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep notes and warnings of Transformers off the user's screen."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
