"""What happened to a shadowed manager, as JSON that holds neither tokens nor prompts nor ids of
requests: block hashes, numbers of tokens, block ids.
"""

import hashlib
import json
import os
import secrets
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any

FORMAT: Final = 1
DEFAULT_MAX_CALLS: Final = 1_000_000
CALLS_VARIABLE: Final = "KVOXIDE_SHADOW_CALLS"
DIRECTORY_VARIABLE: Final = "KVOXIDE_SHADOW_DIR"
_CHUNK: Final = 1_000
_MAX_DIGITS: Final = 18

REQUEST_NUMBERS: Final = (
    "num_tokens",
    "num_prompt_tokens",
    "num_computed_tokens",
    "num_in_flight_tokens",
    "num_preemptions",
    "shared_prefix_boundary",
    "skip_reading_prefix_cache",
    "kv_cache_report_mode",
)


class Recorder:
    """The latest calls on a manager, compressed; at most :func:`max_calls` of them."""

    def __init__(self, configuration: Json) -> None:
        """Start with a fresh manager of this configuration."""
        self._configuration = configuration
        self._chunks: deque[bytes] = deque()
        self._tail: list[str] = []
        self._max_chunks = max(1, -(-max_calls() // _CHUNK))
        self._num_hashes: dict[str, int] = {}
        self._key = secrets.token_bytes(16)
        self.num_dropped = 0

    def __len__(self) -> int:
        """Calls that are held."""
        return len(self._chunks) * _CHUNK + len(self._tail)

    def add(self, call: Json) -> None:
        """Append one call; the oldest ones are dropped where there are too many."""
        self._tail.append(_compact(call))
        if len(self._tail) == _CHUNK:
            self._chunks.append(zlib.compress("\n".join(self._tail).encode(), 1))
            self._tail.clear()
        if len(self._chunks) > self._max_chunks:
            self._chunks.popleft()
            self.num_dropped += _CHUNK

    def name_of(self, request_id: str) -> str:
        """A request's name in the file: the same all along, and no way back to its id."""
        return hashlib.blake2b(request_id.encode(), key=self._key, digest_size=6).hexdigest()

    def state_of(self, request: Any) -> Json:
        """What a manager reads of a request; of its hashes those not recorded before."""
        request_id = request.request_id
        known = self._num_hashes.get(request_id, 0)
        hashes = request.block_hashes
        self._num_hashes[request_id] = len(hashes)
        state = {name: getattr(request, name) for name in REQUEST_NUMBERS if hasattr(request, name)}
        return {
            "request": self.name_of(request_id),
            **state,
            "status": request.status.name,
            "first_new_hash": known,
            "new_hashes": [bytes(hashes[i]).hex() for i in range(known, len(hashes))],
        }

    def forget(self, request_id: str) -> None:
        """The request is gone; its hashes are recorded anew if it comes back."""
        self._num_hashes.pop(request_id, None)

    def write(self, difference: Json) -> Path:
        """Write everything to a new file. Raises :class:`OSError` if that is not possible."""
        directory = os.environ.get(DIRECTORY_VARIABLE) or tempfile.gettempdir()
        Path(directory).mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="kvoxide-shadow-", suffix=".json", dir=directory)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f'{{"format": {FORMAT},\n')
            file.write(f'"configuration": {_compact(self._configuration)},\n')
            file.write(f'"dropped_calls": {self.num_dropped},\n')
            file.write(f'"difference": {_compact(difference)},\n"calls": [\n')
            file.write(",\n".join(self._lines()))
            file.write("\n]}\n")
        return Path(name)

    def _lines(self) -> Iterator[str]:
        for chunk in self._chunks:
            yield from zlib.decompress(chunk).decode().split("\n")
        yield from self._tail


def max_calls() -> int:
    """How many calls are kept: ``KVOXIDE_SHADOW_CALLS``, or the default if that is no number."""
    value = os.environ.get(CALLS_VARIABLE, "")
    is_number = value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS
    return int(value) if is_number and int(value) else DEFAULT_MAX_CALLS


def describe(value: Any, name_of: Callable[[str], str] = str) -> Json:
    """A value that goes into or comes out of a manager, vLLM's or ours, as JSON."""
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
        return {"map": [[describe(k), describe(v)] for k, v in value.items()]}
    if isinstance(value, set | frozenset):
        return {"set": sorted(map(describe, value))}
    if callable(value):
        return {"callback": True}
    return _describe_sequence(value, name_of)


def _describe_sequence(values: Sequence[Any], name_of: Callable[[str], str]) -> Json:
    values = list(values)
    if values and all(hasattr(value, "block_id") for value in values):
        return {"block_list": [value.block_id for value in values]}
    return [describe(value, name_of) for value in values]


def exception_name(error: BaseException) -> str:
    """The built-in class of an exception: kvoxide's own ones derive from those that vLLM raises."""
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins")


def is_event(value: Any) -> bool:
    """Whether this is a KV cache event of vLLM."""
    return type(value).__name__ in ("BlockStored", "BlockRemoved", "AllBlocksCleared")


_SECRET_FIELDS: Final = (
    "token_ids",
    "lookahead_token_ids",
    "extra_keys",
    "lora_name",
    "session_id",
)


def describe_event(event: Any) -> Json:
    """A KV cache event; fields with tokens or names in them as a digest."""
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
    """Described events without what a replay cannot know: tokens, names and their digests."""
    if not isinstance(events, list):
        return events
    return [
        {k: v for k, v in event.items() if k not in _SECRET_FIELDS}
        if isinstance(event, dict) and "event" in event
        else event
        for event in events
    ]


def outcome_digest(outcome: Mapping[str, Json]) -> str:
    """A digest of what a call returned or raised and of how it left the pool."""
    known = {key: outcome[key] for key in ("raises", "free_blocks", "reused") if key in outcome}
    return digest({**known, "result": replayable(outcome.get("result"))})


def events_digest(outcome: Mapping[str, Json]) -> str | None:
    """A digest of the events of a call; None if it had none."""
    return digest(replayable(outcome["events"])) if outcome["events"] else None


def digest(value: Json) -> str:
    """A short digest of a JSON value."""
    return hashlib.blake2b(_compact(value).encode(), digest_size=6).hexdigest()


def _compact(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))
