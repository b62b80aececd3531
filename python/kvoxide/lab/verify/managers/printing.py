"""Prints a difference as JSON that a person can read and a command can replay."""

import dataclasses
import json
from typing import Any

SHOWN_BYTES = 6
LONG = 16
SHOWN = 6


def fields_that_matter(instance: object) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    values = _values_of(instance)
    return {f.name: values[f.name] for f in _fields(instance) if values[f.name] != f.default}


def _values_of(instance: object) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in _fields(instance)}


def _fields(instance: object) -> "tuple[dataclasses.Field[Any], ...]":
    assert dataclasses.is_dataclass(instance)
    return dataclasses.fields(instance)


def json_text(document: dict[str, Any]) -> str:
    """Return JSON with one element of a long list per line, and everything else on one line."""
    members = (f" {json.dumps(key)}: {_member_text(value)}" for key, value in document.items())
    return "{\n" + ",\n".join(members) + "\n}"


def _member_text(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
    return json.dumps(value)


def where_unequal(reference: object, other: object) -> tuple[object, object]:
    """Return both results, reduced to the parts that differ."""
    if dataclasses.is_dataclass(reference) and type(reference) is type(other):
        return where_unequal(_values_of(reference), _values_of(other))
    if isinstance(reference, dict) and isinstance(other, dict):
        return _unequal_members(reference, other)
    if isinstance(reference, list) and isinstance(other, list) and len(reference) > LONG:
        return _unequal_members(dict(enumerate(reference)), dict(enumerate(other)), limit=SHOWN)
    return readable(reference), readable(other)


def _unequal_members(
    reference: dict[Any, object], other: dict[Any, object], limit: int | None = None
) -> tuple[dict[str, object], dict[str, object]]:
    missing = "(missing)"
    keys = [*reference, *(key for key in other if key not in reference)]
    pairs = {key: (reference.get(key, missing), other.get(key, missing)) for key in keys}
    unequal = [key for key, (one, another) in pairs.items() if one != another]
    shown = {str(key): where_unequal(*pairs[key]) for key in unequal[:limit]}
    if limit is not None and len(unequal) > limit:
        shown["and more"] = (len(unequal) - limit, len(unequal) - limit)
    return {key: one for key, (one, _) in shown.items()}, {key: o for key, (_, o) in shown.items()}


def readable(value: object) -> object:
    """Return ``value`` as JSON, with hashes cut to the part that distinguishes them."""
    if isinstance(value, bytes):
        return f"{value[:SHOWN_BYTES].hex()}~{value[-4:].hex()}"
    if dataclasses.is_dataclass(value):
        return readable(_values_of(value))
    if isinstance(value, dict):
        return {str(key): readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return _readable_list(value)
    if isinstance(value, set | frozenset):
        return _readable_list(sorted(value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)


def _readable_list(values: "list[object] | tuple[object, ...]") -> list[object]:
    if len(values) <= LONG:
        return [readable(item) for item in values]
    return [*(readable(item) for item in values[:SHOWN]), f"and {len(values) - SHOWN} more"]
