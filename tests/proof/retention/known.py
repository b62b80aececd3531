"""Stores results of runs, with everything that decides them as the key."""

import hashlib
import json
import os
import threading
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

import kvoxide
from kvoxide import _core
from kvoxide._core import SimulationResult


@dataclass(frozen=True)
class Played:
    """The result of a run, in tokens and blocks."""

    prompt_tokens: int
    hit_tokens: int
    rejected_requests: int
    peak_used_blocks: int
    cached_blocks: int
    # Times to the first token in seconds.
    first_token_p50: float
    first_token_p99: float
    bound_tokens: int | None = None

    @classmethod
    def of(cls, result: SimulationResult) -> "Played":
        assert result.serving is not None
        times = result.serving.total.time_to_first_token or (0.0, 0.0, 0.0)
        return cls(
            prompt_tokens=result.prompt_tokens,
            hit_tokens=result.hit_tokens,
            rejected_requests=result.rejected_requests,
            peak_used_blocks=result.peak_used_blocks,
            cached_blocks=result.cached_blocks,
            first_token_p50=times[0],
            first_token_p99=times[2],
            bound_tokens=result.bound_hit_tokens,
        )

    @property
    def hit_share(self) -> float:
        """The hit share in % of the prompt tokens."""
        return 100 * self.hit_tokens / max(1, self.prompt_tokens)


P = TypeVar("P", bound=Played)


class KnownResults(Generic[P]):
    """A file of JSON lines that several processes may append to, each with a result of one kind. It
    is empty for another release of kvoxide. If other policies than ``adaptive`` changed within one
    release, ``forget`` it."""

    def __init__(self, path: Path, kind: type[P], *, forget: bool = False) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._results: dict[str, P] = {}
        if forget:
            path.unlink(missing_ok=True)
        if path.exists():
            for line in path.read_text().splitlines():
                record = json.loads(line)
                key = record.pop("key")
                self._results[key] = kind(**record)

    def get(self, key: str) -> P | None:
        return self._results.get(key)

    def add(self, key: str, played: P) -> None:
        with self._lock:
            self._results[key] = played
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps({"key": key, **asdict(played)}) + "\n")


@cache
def build_digest() -> str:
    """Return a digest of the compiled module that plays."""
    return hashlib.sha256(Path(_core.__file__).read_bytes()).hexdigest()[:16]


def default_path(judge: str = "retention") -> Path:
    """Return the path in the folder of ``tests/run.sh``, in the folder of this judge."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("KVOXIDE_CACHE") or Path(home) / "kvoxide"
    return Path(cache) / judge / f"sessions-{kvoxide.__version__}.jsonl"
