"""Fields of a model's configuration. Reading a field checks its type."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kvoxide._core import ConfigError

# More than any model has.
MAX_LAYERS: Final = 10_000
_MAX_COUNT: Final = 2**40
_ABSENT: Final = object()
Value = TypeVar("Value")


@dataclass(frozen=True)
class Fields:
    """The attributes of ``values``, which is a configuration of Transformers.

    With ``is_whole``, a field that ``values`` lacks has no value anywhere. Otherwise the model's
    own code could have a value, and kvoxide does not execute this code. Then a field without a
    default is refused, and ``assumed`` collects the fields whose default was used.
    """

    source: str
    values: Any
    is_whole: bool = True
    assumed: list[str] = field(default_factory=list, compare=False)

    def __contains__(self, name: str) -> bool:
        """Return whether a field exists and is not null."""
        return self.get(name) is not None

    def has(self, name: str) -> bool:
        """Return whether a field exists, even if it is null."""
        return self._read(name) is not _ABSENT

    def get(self, name: str) -> Any:  # noqa: ANN401
        """Return the value of a field, unchecked; None if it is missing."""
        value = self._read(name)
        if value is _ABSENT:
            self._assume(name)
            return None
        return value

    def need(self, name: str) -> Any:  # noqa: ANN401
        """Return the value of a field, unchecked.

        Raises :class:`~kvoxide.ConfigError` if it is missing or null.
        """
        value = self._read(name)
        if value is None or value is _ABSENT:
            raise ConfigError(self.missing(name))
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """Return a positive integer, or ``default`` if the field is null or missing everywhere.

        Raises :class:`~kvoxide.ConfigError` for any other value, and if there is no default.
        """
        value = self._read(name)
        if value is None or value is _ABSENT:
            if default is None or (value is _ABSENT and not self.is_whole):
                raise ConfigError(self.missing(name))
            return default
        if type(value) is not int or not 1 <= value <= _MAX_COUNT:
            raise ConfigError(
                f"{self.source}: {name} is {value!r}; it must be an integer of at least 1"
            )
        return value

    @property
    def num_layers(self) -> int:
        """The number of layers."""
        layers = self.count("num_hidden_layers")
        if layers > MAX_LAYERS:
            raise ConfigError(
                f"{self.source}: num_hidden_layers is {layers:,}; the limit is {MAX_LAYERS:,}"
            )
        return layers

    def optional_count(self, name: str) -> int | None:
        """Return a positive integer, or None if the field is missing, null or 0."""
        return self.count(name) if self.get(name) else None

    def flag(self, name: str) -> bool:
        """Return whether a field exists and is true."""
        return bool(self.get(name))

    def kinds(self, known: Collection[str], name: str = "layer_types") -> list[str] | None:
        """Return the kind of each layer, one of ``known``, or None if the field is missing."""
        value = self.items(name)
        if value is None:
            return None
        kept = self.of_layers(name, value)
        for kind in value:
            if not isinstance(kind, str) or kind not in known:
                raise ConfigError(
                    f"{self.source}: {name} has {kind!r}; for this model it can have"
                    f" {', '.join(known)}"
                )
        return kept

    def of_layers(self, name: str, values: list[Value]) -> list[Value]:
        """Return the ``values`` of a field that has one for each layer, without values beyond the
        last layer.

        Raises :class:`~kvoxide.ConfigError` if there are fewer values than layers.
        """
        layers = self.num_layers
        if len(values) < layers:
            raise ConfigError(
                f"{self.source}: {name} has {len(values)} values; it needs one for each of the"
                f" {layers} layers"
            )
        return values[:layers]

    def counts(self, name: str) -> list[int] | None:
        """Return a list of integers of 0 or more, or None if the field is missing."""
        value = self.items(name)
        if value is not None and not all(type(each) is int and each >= 0 for each in value):
            raise ConfigError(f"{self.source}: {name} must be a list of integers of at least 0")
        return value

    def items(self, name: str) -> list[Any] | None:
        """Return a list, whose items are not checked, or None if the field is missing or null.

        Raises :class:`~kvoxide.ConfigError` for a value that is not a list.
        """
        value = self.get(name)
        if value is not None and not isinstance(value, list | tuple):
            raise ConfigError(f"{self.source}: {name} is {value!r}; expected a list")
        return None if value is None else list(value)

    def text(self, name: str, default: str) -> str:
        """Return a text, or ``default`` if the field is missing or null."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ConfigError(f"{self.source}: {name} is {value!r}; expected text")
        return value

    def part(self, name: str) -> "Fields":
        """Return the fields of the object in a field."""
        value = self.need(name)
        if isinstance(value, str | int | float | list | tuple):
            raise ConfigError(f"{self.source}: {name} is not a JSON object")
        return Fields(f"{self.source}: {name}", value, self.is_whole, self.assumed)

    @property
    def differs_by_layer(self) -> bool:
        """Whether some fields have other values in some layers."""
        return bool(getattr(self.values, "is_heterogeneous", False))

    def layer(self, index: int) -> "Fields":
        """Return the fields of one layer."""
        if not self.differs_by_layer:
            return self
        values = self.values.per_layer_config[index]
        return Fields(f"{self.source}: layer {index}", values, self.is_whole, self.assumed)

    def _read(self, name: str) -> Any:  # noqa: ANN401
        if isinstance(self.values, dict):
            return self.values.get(name, _ABSENT)
        try:
            return getattr(self.values, name, _ABSENT)
        except RuntimeError:
            raise ConfigError(
                f"{self.source}: {name} differs between layers, which kvoxide does not know for"
                " this model"
            ) from None

    def _assume(self, name: str) -> None:
        if not self.is_whole and name not in self.assumed:
            self.assumed.append(name)

    def missing(self, name: str) -> str:
        """Return the message about a missing field."""
        if self.is_whole:
            return f"{self.source} has no {name}; add it to the file"
        return (
            f"{self.source} has no {name}. The model's own code may have a default for it, but"
            f" kvoxide does not execute that code. Add {name} to the file"
        )
