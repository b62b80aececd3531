"""The part of a diagnosis that describes a model."""

from dataclasses import dataclass

from kvoxide.vllm.environment import native_kinds


class ModelError(ValueError):
    """The files of a model cannot be used, or vLLM refuses them."""


@dataclass(frozen=True)
class ModelGroup:
    """Layers of one kind. ``because`` names the class or the vLLM that they were read from."""

    kind: str
    layers: int
    because: str

    @property
    def is_native(self) -> bool:
        """Whether kvoxide manages groups of this kind."""
        return self.kind in native_kinds()


@dataclass(frozen=True)
class ModelGroups:
    """The kinds of a model, in the order of their first groups. There are none if its class is
    unknown. Hits are multiples of ``hit_tokens``, None if that is unknown."""

    groups: tuple[ModelGroup, ...]
    hit_tokens: int | None = None
    notes: tuple[str, ...] = ()
