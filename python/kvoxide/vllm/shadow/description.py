"""Describes values of a manager as JSON: block hashes, numbers of tokens and block ids. The JSON
contains no tokens, prompts or ids of requests."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any

_MAX_LOGGED: Final = 400


def describe(value: Any, name_of: Callable[[str], str] = str) -> Json:
    """Return an argument or result of a manager, vLLM's or kvoxide's, as JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "__index__"):
        return int(value)
    if isinstance(value, bytes):
        return {"hash": value.hex()}
    if hasattr(value, "get_block_ids"):
        return {"blocks": [list(ids) for ids in value.get_block_ids()]}
    if hasattr(value, "block_id"):
        return {"block": value.block_id}
    if hasattr(value, "request_id"):
        return {"request": name_of(value.request_id)}
    if is_event(value):
        return describe_event(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {type(value).__name__: {k: describe(v) for k, v in asdict(value).items()}}
    if isinstance(value, Mapping):
        # If a manager returns values by request, the key is the request's id.
        return {"map": [[_describe_key(k, name_of), describe(v)] for k, v in value.items()]}
    if isinstance(value, set | frozenset):
        return {"set": sorted(map(describe, value))}
    if callable(value):
        return {"callback": True}
    return _describe_sequence(value, name_of)


def _describe_key(key: Any, name_of: Callable[[str], str]) -> Json:
    return name_of(key) if isinstance(key, str) else describe(key)


def _describe_sequence(values: Sequence[Any], name_of: Callable[[str], str]) -> Json:
    values = list(values)
    if values and all(hasattr(value, "block_id") for value in values):
        return {"block_list": [value.block_id for value in values]}
    return [describe(value, name_of) for value in values]


def exception_name(error: BaseException) -> str:
    """Return the name of an exception's built-in class. kvoxide's own exceptions derive from the
    ones that vLLM raises."""
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins")


def is_event(value: Any) -> bool:
    """Return whether this is a KV cache event of vLLM."""
    return type(value).__name__ in ("BlockStored", "BlockRemoved", "AllBlocksCleared")


_SECRET_FIELDS: Final = (
    "token_ids",
    "lookahead_token_ids",
    "extra_keys",
    "lora_name",
    "session_id",
)


def describe_event(event: Any) -> Json:
    """Return a KV cache event. Fields that contain tokens or names are replaced by a digest."""
    fields: dict[str, Json] = {"event": type(event).__name__}
    for name in getattr(event, "__struct_fields__", ()):
        value = getattr(event, name)
        if name in _SECRET_FIELDS and value is not None:
            fields[name] = {"digest": digest(describe(value))}
        else:
            fields[name] = describe(value)
    if "token_ids" in fields:
        fields["num_tokens"] = len(event.token_ids)
    return fields


def replayable(events: Json) -> Json:
    """Return described events without the values that a replay cannot know: tokens, names and their
    digests."""
    if not isinstance(events, list):
        return events
    return [
        {k: v for k, v in event.items() if k not in _SECRET_FIELDS}
        if isinstance(event, dict) and "event" in event
        else event
        for event in events
    ]


def outcome_digest(outcome: Mapping[str, Json]) -> str:
    """Return a digest of a call's result or exception, and of the pool after it."""
    known = {key: outcome[key] for key in ("raises", "free_blocks", "reused") if key in outcome}
    return digest({**known, "result": replayable(outcome.get("result"))})


def events_digest(outcome: Mapping[str, Json]) -> str | None:
    """Return a digest of the events of a call; None if it had none."""
    return digest(replayable(outcome["events"])) if outcome["events"] else None


def digest(value: Json) -> str:
    """Return a short digest of a JSON value."""
    return hashlib.blake2b(compact(value).encode(), digest_size=6).hexdigest()


def compact(value: Json) -> str:
    """Return a JSON value as text, without spaces."""
    return json.dumps(value, separators=(",", ":"))


def shortened(value: Json) -> str:
    """Return a value as text for a line of the log."""
    text = str(value)
    return text if len(text) <= _MAX_LOGGED else text[:_MAX_LOGGED] + " ..."
