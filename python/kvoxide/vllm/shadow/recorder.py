"""Keeps the calls of a shadowed manager until there is a difference to report."""

import hashlib
import os
import secrets
import tempfile
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kvoxide.vllm.shadow.description import Json, compact

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
    """The latest calls of a manager, compressed, at most :func:`max_calls` of them."""

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
        """Return how many calls are kept."""
        return len(self._chunks) * _CHUNK + len(self._tail)

    def add(self, call: Json) -> None:
        """Append one call. Drop the oldest calls if there are too many."""
        self._tail.append(compact(call))
        if len(self._tail) == _CHUNK:
            self._chunks.append(zlib.compress("\n".join(self._tail).encode(), 1))
            self._tail.clear()
        if len(self._chunks) > self._max_chunks:
            self._chunks.popleft()
            self.num_dropped += _CHUNK

    def name_of(self, request_id: str) -> str:
        """Return a request's name in the file. It stays the same, and does not reveal the id."""
        return hashlib.blake2b(request_id.encode(), key=self._key, digest_size=6).hexdigest()

    def state_of(self, request: Any) -> Json:
        """Return the values that a manager reads of a request, with only the hashes that were not
        recorded before."""
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
        """Forget an ended request. If it comes back, its hashes are recorded again."""
        self._num_hashes.pop(request_id, None)

    def write(self, difference: Json) -> Path:
        """Write everything to a new file. Raises :class:`OSError` if that is not possible."""
        directory = os.environ.get(DIRECTORY_VARIABLE) or tempfile.gettempdir()
        Path(directory).mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="kvoxide-shadow-", suffix=".json", dir=directory)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f'{{"format": {FORMAT},\n')
            file.write(f'"configuration": {compact(self._configuration)},\n')
            file.write(f'"dropped_calls": {self.num_dropped},\n')
            file.write(f'"difference": {compact(difference)},\n"calls": [\n')
            file.write(",\n".join(self._lines()))
            file.write("\n]}\n")
        return Path(name)

    def _lines(self) -> Iterator[str]:
        for chunk in self._chunks:
            yield from zlib.decompress(chunk).decode().split("\n")
        yield from self._tail


def max_calls() -> int:
    """Return how many calls are kept: ``KVOXIDE_SHADOW_CALLS``, or the default if that is not a
    number."""
    value = os.environ.get(CALLS_VARIABLE, "")
    is_number = value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS
    return int(value) if is_number and int(value) else DEFAULT_MAX_CALLS
