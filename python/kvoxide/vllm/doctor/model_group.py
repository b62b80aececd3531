"""What a diagnosis says of a model."""

from dataclasses import dataclass

from kvoxide.vllm.environment import native_kinds


class ModelError(ValueError):
    """The files of a model cannot be used, or vLLM refuses them."""


@dataclass(frozen=True)
class ModelGroup:
    """Layers of one kind. ``layers`` is None where the configuration does not tell."""

    kind: str
    layers: int | None
    because: str
    is_guess: bool

    @property
    def is_native(self) -> bool:
        """Whether kvoxide manages groups of this kind."""
        return self.kind in native_kinds()


@dataclass(frozen=True)
class ModelGroups:
    """The kinds of a model, in the order of their first groups; ``hit_tokens`` are those that hits
    are multiples of, None where that is not known."""

    groups: tuple[ModelGroup, ...]
    hit_tokens: int | None = None
    notes: tuple[str, ...] = ()
