"""Stores results of runs, with everything that decides them as the key."""

import hashlib
import json
import os
import threading
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import kvoxide
from kvoxide import _core


@dataclass(frozen=True)
class Played:
    """The result of a run, in tokens and blocks."""

    prompt_tokens: int
    hit_tokens: int
    rejected_requests: int
    preemptions: int
    peak_used_blocks: int
    cached_blocks: int
    # Whether the scoring function in force changed before any block was evicted.
    changed_early: bool
    bound_tokens: int | None = None

    @property
    def hit_share(self) -> float:
        """The hit share in % of the prompt tokens."""
        return 100 * self.hit_tokens / max(1, self.prompt_tokens)


class KnownResults:
    """A file of JSON lines that several processes may append to. It is empty for another release of
    kvoxide. If other policies than ``adaptive`` changed within one release, ``forget`` it."""

    def __init__(self, path: Path, *, forget: bool = False) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._results: dict[str, Played] = {}
        if forget:
            path.unlink(missing_ok=True)
        if path.exists():
            for line in path.read_text().splitlines():
                record = json.loads(line)
                key = record.pop("key")
                self._results[key] = Played(**record)

    def get(self, key: str) -> Played | None:
        return self._results.get(key)

    def add(self, key: str, played: Played) -> None:
        with self._lock:
            self._results[key] = played
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps({"key": key, **asdict(played)}) + "\n")


@cache
def build_digest() -> str:
    """Return a digest of the compiled module that plays."""
    return hashlib.sha256(Path(_core.__file__).read_bytes()).hexdigest()[:16]


def default_path() -> Path:
    """Return the path in the folder of ``tests/run.sh``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("KVOXIDE_CACHE") or Path(home) / "kvoxide"
    return Path(cache) / "retention" / f"results-{kvoxide.__version__}.jsonl"
