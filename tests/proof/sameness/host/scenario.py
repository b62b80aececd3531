"""The configuration of the managers of both sides."""

import hashlib
from dataclasses import dataclass
from random import Random
from typing import Any

MAX_GROUPS = 4
HASH_BYTES = 16


@dataclass(frozen=True)
class Scenario:
    """A configuration. ``share_of_positions`` is how many of a request's keys have a position. With
    ``hands_over``, the manager switches to vLLM's own in between."""

    cache_policy: str = "lru"
    num_chunks: int = 7
    store_threshold: int = 1
    max_tracker_size: int = 64_000
    enable_events: bool = True
    num_groups: int = 1
    share_of_positions: float = 1.0
    hands_over: bool = False
    seed: int = 0

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of vLLM's class."""
        return {
            "num_chunks": self.num_chunks,
            "cache_policy": self.cache_policy,
            "enable_events": self.enable_events,
            "store_threshold": self.store_threshold,
            "max_tracker_size": self.max_tracker_size,
        }


def random_scenario(seed: int) -> Scenario:
    rng = Random(seed)
    return Scenario(
        cache_policy=rng.choice(["lru", "arc"]),
        num_chunks=rng.choice([0, 1, 2, 7, 7, 20, 20, 100, 300]),
        store_threshold=rng.choice([0, 1, 1, 1, 2, 3]),
        max_tracker_size=rng.choice([1, 3, 20, 64_000]),
        enable_events=rng.random() < 0.8,
        num_groups=rng.randint(1, MAX_GROUPS),
        share_of_positions=rng.choice([1.0, 1.0, 0.8, 0.0]),
        hands_over=rng.random() < 0.1,
        seed=seed,
    )


def key_of(number: int) -> bytes:
    """Return the key with a number, which has its group."""
    block, group = divmod(number, MAX_GROUPS)
    return hashlib.sha256(str(block).encode()).digest()[:HASH_BYTES] + group.to_bytes(4, "big")


def number_of(block: int, group: int) -> int:
    return block * MAX_GROUPS + group
