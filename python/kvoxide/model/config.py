"""The ``config.json`` of a model: where it is, which part is the language model's, its fields."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from kvoxide._core import ConfigError
from kvoxide.model.defaults import base_class, with_defaults
from kvoxide.model.folder import config_file, read_object
from kvoxide.model.mistral_format import from_mistral_format
from kvoxide.model.quantization import Quantization, read_quantization

_NESTED: Final = ("text_config", "llm_config", "language_config")
_SEEING: Final = "ForConditionalGeneration"
# More than any model has.
_MAX_LAYERS: Final = 10_000
_MAX_COUNT: Final = 2**40
# vLLM computes in bfloat16 where a checkpoint is in 32 bits or does not say.
_DEFAULT_DTYPE: Final = "bfloat16"
Value = TypeVar("Value")


class UnknownModelError(ConfigError):
    """A model is of no class, or of one that no family has."""


@dataclass(frozen=True)
class Fields:
    """Fields of a configuration, whose kind is checked when they are read."""

    source: str
    values: Mapping[str, Any]

    def __contains__(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self.values.get(name) is not None

    def count(self, name: str, default: int | None = None) -> int:
        """A positive integer. Raises :class:`~kvoxide.ConfigError` if it is missing without a
        ``default``, or something else."""
        value = self.values.get(name)
        if value is None:
            if default is None:
                raise ConfigError(f"{self.source} has no {name}")
            return default
        if type(value) is not int or not 1 <= value <= _MAX_COUNT:
            raise ConfigError(f"{self.source}: {name} is {value!r}, not a count")
        return value

    @property
    def num_layers(self) -> int:
        """How many layers the model has."""
        layers = self.count("num_hidden_layers")
        if layers > _MAX_LAYERS:
            raise ConfigError(
                f"{self.source}: num_hidden_layers is {layers:,}; at most {_MAX_LAYERS:,} are known"
            )
        return layers

    def optional_count(self, name: str) -> int | None:
        """As :meth:`count`, but None where the field is missing, null or 0."""
        return self.count(name) if self.values.get(name) else None

    def flag(self, name: str) -> bool:
        """Whether a field is there and true."""
        return bool(self.values.get(name))

    def kinds(self, known: Collection[str], name: str = "layer_types") -> list[str] | None:
        """The kind of each layer, one of ``known``, or None where the field is missing."""
        value = self._list(name)
        if value is None:
            return None
        kept = self.of_layers(name, value)
        for kind in value:
            if not isinstance(kind, str) or kind not in known:
                raise ConfigError(
                    f"{self.source}: {name} has {kind!r}; known for this model are"
                    f" {', '.join(known)}"
                )
        return kept

    def of_layers(self, name: str, values: list[Value]) -> list[Value]:
        """The ``values`` of a field with one for each layer, without those beyond the last layer.

        Raises :class:`~kvoxide.ConfigError` if there are fewer than layers.
        """
        layers = self.num_layers
        if len(values) < layers:
            raise ConfigError(f"{self.source}: {name} has {len(values)} of {layers} layers")
        return values[:layers]

    def counts(self, name: str) -> list[int] | None:
        """A list of integers from 0 on, or None where the field is missing."""
        value = self._list(name)
        if value is not None and not all(type(each) is int and each >= 0 for each in value):
            raise ConfigError(f"{self.source}: {name} is not a list of numbers")
        return value

    def text(self, name: str, default: str) -> str:
        """A text."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ConfigError(f"{self.source}: {name} is {value!r}, not a text")
        return value

    def part(self, name: str) -> "Fields":
        """The object that a field holds."""
        value = self.values.get(name)
        if not isinstance(value, Mapping):
            raise ConfigError(f"{self.source}: {name} is not an object")
        return Fields(f"{self.source}: {name}", value)

    def _list(self, name: str) -> list[Any] | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, list):
            raise ConfigError(f"{self.source}: {name} is {value!r}, not a list")
        return value


@dataclass(frozen=True)
class Config:
    """A model's configuration: the class that vLLM would load, and the fields of its language model
    and of its encoder of images.

    ``dtype`` is the model's precision, ``quantization`` says what its KV cache is quantized to.
    """

    architecture: str
    text: Fields
    dtype: str
    quantization: Quantization
    vision: Fields

    @property
    def is_text(self) -> bool:
        """Whether the class of the model takes nothing but text."""
        return not self.architecture.endswith(_SEEING)


def read_config(path: Path) -> Config:
    """The configuration in the directory ``path``, or in the file ``path``, with what files beside
    it say of the cache.

    Raises :class:`~kvoxide.ConfigError` that says what is wrong with which file.
    """
    file = config_file(path)
    values = read_object(file)
    if "architectures" not in values and "n_layers" in values:
        values = from_mistral_format(str(file), values)
    return _config(str(file), values, read_quantization(file, values))


def _config(source: str, values: Mapping[str, Any], quantization: Quantization) -> Config:
    text = values
    for name in _NESTED:
        if isinstance(values.get(name), Mapping):
            text = values[name]
    fields = Fields(source, with_defaults(text))
    dtype = _dtype(fields, Fields(source, values))
    vision = values.get("vision_config")
    vision = Fields(f"{source}: vision_config", vision if isinstance(vision, Mapping) else {})
    return Config(_architecture(source, values), fields, dtype, quantization, vision)


def _architecture(source: str, values: Mapping[str, Any]) -> str:
    """The first of the ``architectures``; where there is none, the base class of the
    ``model_type``."""
    named = values.get("architectures") or [base_class(values.get("model_type"))]
    if not isinstance(named, list) or named[0] is None:
        raise UnknownModelError(
            f"{source} names no class of a model in architectures, and none is known for the"
            f" model_type {values.get('model_type')!r}"
        )
    return str(named[0])


def _dtype(*fields: Fields) -> str:
    for part in reversed(fields):
        for name in ("dtype", "torch_dtype"):
            if name in part:
                dtype = part.text(name, "")
                return _DEFAULT_DTYPE if dtype == "float32" else dtype
    return _DEFAULT_DTYPE
