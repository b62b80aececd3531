"""Tests how much a client with a bad habit costs the others under ``adaptive``."""

import json
from dataclasses import dataclass
from statistics import fmean
from typing import Self

import pytest
from kvoxide._core import Trace
from kvoxide.lab.replay.input import preset_groups

from .cells import PRESETS
from .clients import CLIENT, HABITS, Beside, Habit
from .judge import ADAPTIVE, play

BLOCKS = {
    "llama": 6_000,
    "gpt-oss": 12_000,
    "gemma-3": 36_000,
    "qwen3-next": 500,
    "deepseek-v4": 8_500,
}
# A single pool differs by some points for any reason, so the cost is a mean over these sizes.
SIZES = (0.7, 0.85, 1.0, 1.2, 1.4)
# The most points of hit share that the others may lose.
MOST = 1.0


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_bad_client_costs_the_others_no_more_than_a_polite_one(habit: Habit, seed: int) -> None:
    bad, polite = (Others.of(Beside(habit, seed, is_bad)) for is_bad in (True, False))
    for preset in PRESETS:
        costs = [polite.share(preset, size) - bad.share(preset, size) for size in SIZES]
        assert fmean(costs) <= MOST, (preset, costs)


@dataclass(frozen=True)
class Others:
    """The traffic, and the requests in it that are not the client's."""

    trace: Trace
    are_theirs: list[bool]

    @classmethod
    def of(cls, traffic: Beside) -> Self:
        recorded = traffic.recorded()
        sessions = (json.loads(line)["session_id"] for line in recorded.lines)
        return cls(recorded.trace(), [session != CLIENT for session in sessions])

    def share(self, preset: str, size: float) -> float:
        """Return the hit share, in %, of all requests but the client's."""
        blocks = int(BLOCKS[preset] * size)
        result = play(self.trace, preset_groups(preset), ADAPTIVE, blocks)
        assert result.evictions > 0 or size > 1
        assert result.rejected_requests == 0
        prompts, _, hits, _ = result.per_request[self.are_theirs].T
        return 100 * int(hits.sum()) / int(prompts.sum())
