"""Adds a rope that stretches a model's length, in the published spellings."""

from typing import Any

from .classes import Fields, defaults

COUNT = 12
_LENGTH = 8192


def add(text: Fields, owner: Any, number: int) -> None:
    """Give the language model's part one of ``COUNT`` ropes. ``owner`` is the class of the part."""
    choice = number % COUNT
    number //= COUNT
    known = {**defaults(owner), **text}
    theta = _theta(known)
    length = known.get("max_position_embeddings")
    original = length if isinstance(length, int) else _LENGTH
    name = "rope_type" if number & 1 else "type"
    has_parameters = bool(number & 2)
    if _is_per_layer(known.get("rope_parameters")) and number & 4:
        kinds = sorted(known["rope_parameters"])
        text["rope_parameters"] = {
            kind: {"rope_theta": theta, "rope_type": "default"} for kind in kinds
        } | {
            "full_attention": {
                "rope_theta": theta,
                **_scaling(choice, original, "rope_type", text, owner, known),
            }
        }
        return
    scaling = _scaling(choice, original, name, text, owner, known)
    text.pop("rope_parameters", None)
    if has_parameters:
        text["rope_parameters"] = {"rope_theta": theta, **scaling}
        if "rope_type" not in scaling:
            text["rope_parameters"]["rope_type"] = text["rope_parameters"].pop("type")
    else:
        text["rope_theta"] = theta
        text["rope_scaling"] = scaling


def _scaling(
    choice: int, original: int, name: str, text: Fields, owner: Any, known: Fields
) -> Fields:
    """Return the rope itself. Some also set the length, or the original length, next to it."""
    if choice == 0:
        return {name: "yarn", "factor": 4.0, "original_max_position_embeddings": original}
    if choice == 1:
        return {name: "yarn", "factor": 2.0}
    if choice == 2:
        text["max_position_embeddings"] = original * 4
        return {name: "yarn", "factor": 4.0, "original_max_position_embeddings": original}
    if choice == 3:
        text["original_max_position_embeddings"] = original
        return {name: "yarn", "factor": 4.0}
    if choice == 4:
        return {
            name: "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": original,
        }
    if choice == 5:
        return {name: "linear", "factor": 2.0}
    if choice == 6:
        return {name: "linear", "factor": 4.0, "original_max_position_embeddings": original // 2}
    if choice == 7:
        return {name: "dynamic", "factor": 2.0}
    if choice == 8:
        return {name: "dynamic", "factor": 2.0, "original_max_position_embeddings": original // 2}
    half = _rotary(known) // 2
    factors: Fields = {"short_factor": [1.0] * half, "long_factor": [1.5] * half, "factor": 2.0}
    if choice == 9:
        text["original_max_position_embeddings"] = original // 2
        return {name: "longrope", **factors}
    if choice == 10:
        return {name: "longrope", **factors, "original_max_position_embeddings": original // 2}
    if "max_position_embeddings" in defaults(owner):
        text.pop("max_position_embeddings", None)
    return {name: "yarn", "factor": 2.0, "original_max_position_embeddings": original}


def _rotary(known: Fields) -> int:
    """Return how many of a head's dimensions are rotated."""
    if isinstance(known.get("qk_rope_head_dim"), int):
        return int(known["qk_rope_head_dim"])
    size, heads, hidden = map(known.get, ("head_dim", "num_attention_heads", "hidden_size"))
    if not isinstance(size, int):
        size = hidden // heads if isinstance(heads, int) and isinstance(hidden, int) else 128
    rope = known.get("rope_parameters")
    partial = known.get("partial_rotary_factor")
    if isinstance(rope, dict):
        partial = partial or rope.get("partial_rotary_factor")
    return int(size * (partial if isinstance(partial, int | float) else 1.0))


def _theta(known: Fields) -> float:
    rope = known.get("rope_parameters") or {}
    if _is_per_layer(rope):
        rope = next(iter(rope.values()))
    found = rope.get("rope_theta", known.get("rope_theta"))
    return float(found) if isinstance(found, int | float) else 10000.0


def _is_per_layer(rope: Any) -> bool:
    return isinstance(rope, dict) and any(isinstance(value, dict) for value in rope.values())
