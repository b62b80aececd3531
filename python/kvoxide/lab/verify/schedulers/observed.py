"""The compared values: outputs of a scheduler as plain values, without times."""

import dataclasses
import enum
import itertools
from collections import deque
from typing import Any

import numpy as np

NOT_COMPARED = frozenset(
    {"timestamp", "ts", "sampling_params", "kv_connector_block_state", "prompt_token_ids"}
)


def plain(value: Any) -> Any:
    """Return lists, dicts and numbers. A set becomes a sorted list, an object the dict of its
    fields."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, deque | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, enum.Enum | np.generic):
        return str(value)
    return _plain_fields(value)


def plain_events(events: list[Any]) -> list[Any]:
    """Return events as plain values, with runs of removals sorted. If a block has several hashes,
    they leave vLLM's pool in no order."""
    runs = itertools.groupby(map(plain, events), key=_is_removal)
    return [
        event
        for is_removed, run in runs
        for event in (sorted(run, key=repr) if is_removed else run)
    ]


def _is_removal(event: Any) -> bool:
    return bool(event["type"] == "BlockRemoved")


def _plain_fields(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        names = tuple(field.name for field in dataclasses.fields(value))
    else:
        struct_fields = getattr(value, "__struct_fields__", None)
        names = tuple(vars(value)) if struct_fields is None else struct_fields
    fields = {name: getattr(value, name) for name in names if name not in NOT_COMPARED}
    return {"type": type(value).__name__, **{name: plain(item) for name, item in fields.items()}}
