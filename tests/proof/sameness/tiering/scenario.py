"""The configuration of the tiers of both sides."""

from dataclasses import dataclass
from random import Random
from typing import Any

from ..host.scenario import MAX_GROUPS, Scenario


@dataclass(frozen=True)
class TieringScenario(Scenario):
    """A configuration. The first tier wants all chunks of a request if ``is_request_level``, and
    the last one is served between steps if ``is_polled``. With ``has_pressure``, slow stores make
    tiers refuse stores."""

    num_tiers: int = 1
    is_request_level: bool = False
    is_polled: bool = False
    has_pressure: bool = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of vLLM's class of the primary tier, without its memory."""
        return {
            "num_chunks": self.num_chunks,
            "cache_policy": self.cache_policy,
            "enable_events": self.enable_events,
        }


def random_scenario(seed: int) -> TieringScenario:
    rng = Random(seed)
    return TieringScenario(
        cache_policy=rng.choice(["lru", "arc"]),
        num_chunks=rng.choice([0, 1, 2, 7, 7, 20, 20, 100, 300]),
        enable_events=rng.random() < 0.8,
        num_groups=rng.randint(1, MAX_GROUPS),
        share_of_positions=rng.choice([1.0, 1.0, 0.8, 0.0]),
        hands_over=rng.random() < 0.1,
        num_tiers=rng.choice([0, 1, 1, 2, 2, 3]),
        is_request_level=rng.random() < 0.4,
        is_polled=rng.random() < 0.3,
        has_pressure=rng.random() < 0.3,
        seed=seed,
    )
