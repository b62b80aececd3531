"""The visible behaviour of an engine, and the first difference of two engines."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Played:
    """One workload's outcome, in the order of events.

    ``steps`` has what each step scheduled and on which blocks. ``events`` has the KV events of each
    step that had any. ``requests`` has the tokens and ``num_cached_tokens`` of each request.
    ``resets`` is whether each reset of the prefix cache was granted. ``counters`` has vLLM's
    metrics at the end.
    """

    steps: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    requests: dict[str, Any] = field(default_factory=dict)
    resets: list[bool] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)


@dataclass
class Outcome:
    """The outcome of a job. ``release`` is vLLM's. ``manager``, ``scheduler`` and, for the host
    tier's manager, ``host`` name the classes that ran."""

    release: str
    manager: str
    scheduler: str
    host: str | None
    played: list[Played]
    seconds: float

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Outcome":
        played = [Played(**each) for each in values.pop("played")]
        return cls(played=played, **values)


def first_difference(left: Any, right: Any, path: str = "") -> str | None:
    """Return the first place where two JSON values or dataclasses of them differ, in words."""
    if isinstance(left, Played) and isinstance(right, Played):
        left, right = vars(left), vars(right)
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        pairs = [(f".{key}", left[key], right[key]) for key in left]
    elif isinstance(left, list) and isinstance(right, list):
        both = zip(left, right, strict=False)
        pairs = [(f"[{at}]", one, other) for at, (one, other) in enumerate(both)]
        pairs.append((".length", len(left), len(right)))
    else:
        return None if left == right else f"{path}: {left!r} != {right!r}"
    found = (first_difference(one, other, path + step) for step, one, other in pairs)
    return next((difference for difference in found if difference is not None), None)
