"""The ``config.json`` of a model: where it is, which part is the language model's, and its fields."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvoxide._core import ConfigError
from kvoxide.model.defaults import with_defaults
from kvoxide.model.mistral_format import from_mistral_format

_CONFIG: Final = "config.json"
_MISTRAL_CONFIG: Final = "params.json"
_NESTED: Final = ("text_config", "llm_config", "language_config")
# vLLM computes in bfloat16 where a checkpoint is in 32 bits or does not say.
_DEFAULT_DTYPE: Final = "bfloat16"


@dataclass(frozen=True)
class Fields:
    """Fields of a configuration, whose kind is checked when they are read."""

    source: str
    values: Mapping[str, Any]

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def count(self, name: str, default: int | None = None) -> int:
        """A positive integer. Raises :class:`~kvoxide.ConfigError` if it is missing without a
        ``default``, or something else."""
        value = self.values.get(name)
        if value is None:
            if default is None:
                raise ConfigError(f"{self.source} has no {name}")
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{self.source}: {name} is {value!r}, not a positive integer")
        return value

    def optional_count(self, name: str) -> int | None:
        """As :meth:`count`, but None where the field is missing, null or 0."""
        return self.count(name) if self.values.get(name) else None

    def flag(self, name: str) -> bool:
        """Whether a field is there and true."""
        return bool(self.values.get(name))

    def names(self, name: str, length: int) -> list[str] | None:
        """A list of ``length`` texts, or None where the field is missing."""
        value = self._list(name)
        if value is None:
            return None
        if len(value) < length or not all(isinstance(each, str) for each in value):
            raise ConfigError(f"{self.source}: {name} does not name the kind of {length} layers")
        return value[:length]

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
    """A model's configuration: the class that vLLM would load, and the language model's fields."""

    architecture: str
    text: Fields
    dtype: str


def read_config(path: Path) -> Config:
    """The configuration in the directory ``path``, or in the file ``path``.

    In a directory it is ``config.json``; ``params.json``, Mistral's own format, where that is the
    only one or where the weights are in Mistral's format too, as in vLLM. Raises
    :class:`~kvoxide.ConfigError` that says what is wrong with which file.
    """
    file = _file_of(path)
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{file} holds no JSON object")
    if "architectures" not in values and "n_layers" in values:
        values = from_mistral_format(str(file), values)
    return _config(str(file), values)


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    mistral = path / _MISTRAL_CONFIG
    has_mistral_weights = any(path.glob("consolidated*.safetensors"))
    if mistral.exists() and (has_mistral_weights or not (path / _CONFIG).exists()):
        return mistral
    return path / _CONFIG


def _config(source: str, values: Mapping[str, Any]) -> Config:
    architectures = values.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        raise ConfigError(f"{source} names no class of a model in architectures")
    text = values
    for name in _NESTED:
        if isinstance(values.get(name), Mapping):
            text = values[name]
    fields = Fields(source, with_defaults(text))
    return Config(str(architectures[0]), fields, _dtype(fields, Fields(source, values)))


def _dtype(*fields: Fields) -> str:
    for part in reversed(fields):
        for name in ("dtype", "torch_dtype"):
            if name in part:
                dtype = part.text(name, "")
                return _DEFAULT_DTYPE if dtype == "float32" else dtype
    return _DEFAULT_DTYPE
