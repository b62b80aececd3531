"""Counts how often vLLM's own code replaced a part of kvoxide, by the kind of reason."""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, get_args

from kvoxide.vllm.environment import counters

FallbackKind: TypeAlias = Literal[
    "unsupported_vllm",
    "changed_vllm",
    "other_plugin",
    "unsupported_model",
    "unsupported_connector",
    "scheduler",
    "settings",
    "installation",
    "hash_difference",
    "poked",
    "error",
]

FALLBACK_KINDS: Final[tuple[FallbackKind, ...]] = get_args(FallbackKind)
METRIC: Final = "kvoxide_fallbacks_total"


class Reason(str):
    """A reason for the log, and its kind for metrics."""

    __slots__ = ("kind",)

    kind: FallbackKind

    def __new__(cls, text: str, kind: FallbackKind) -> "Reason":
        """Take the text and its kind."""
        reason = super().__new__(cls, text)
        reason.kind = kind
        return reason


def count_fallback(kind: FallbackKind) -> None:
    """Count a fallback."""
    counters.add(METRIC, reason=kind)


def kind_of(reasons: Sequence[str]) -> FallbackKind:
    """Return the kind of the first reason that has one; ``error`` if none has."""
    kinds = [reason.kind for reason in reasons if isinstance(reason, Reason)]
    return kinds[0] if kinds else "error"
