"""``python -m tests.proof.retention.client_costs [SEED...]``: prints what clients with bad habits
cost the others, under vLLM's default and under ``adaptive``, as the table of docs/lab/retention.md.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Self

from kvoxide._core import Trace
from kvoxide.lab.replay.input import DEFAULT_POLICY, preset_groups

from .cells import Loop
from .clients import CLIENT, HABITS, Beside, Habit
from .playing import ADAPTIVE, play

BLOCKS: Final = {
    "llama": 6_000,
    "gpt-oss": 12_000,
    "gemma-3": 36_000,
    "qwen3-next": 500,
    "deepseek-v4": 8_500,
}
# A single pool differs by some points for any reason, so the cost is a mean over these sizes.
SIZES: Final = (0.7, 0.85, 1.0, 1.2, 1.4)
_POLICIES: Final = (DEFAULT_POLICY, ADAPTIVE)
_SEEDS: Final = (1, 2)


def main() -> int:
    seeds = [int(seed) for seed in sys.argv[1:]] or list(_SEEDS)
    print(f"| habit | policy | {' | '.join(BLOCKS)} |")
    print("|" + "---|" * (2 + len(BLOCKS)))
    for habit in HABITS:
        for line in _lines(habit, seeds):
            print(line, flush=True)
    return 0


def _lines(habit: Habit, seeds: list[int]) -> Iterator[str]:
    pairs = [Pair.of(habit, seed) for seed in seeds]
    for policy in _POLICIES:
        gains = [
            " / ".join(f"{-fmean(pair.costs(preset, policy)):+.1f}" for pair in pairs)
            for preset in BLOCKS
        ]
        yield f"| {habit.__name__} | `{policy}` | {' | '.join(gains)} |"


@dataclass(frozen=True)
class Pair:
    """The others with a client that has a habit, and with a polite one."""

    bad: "Others"
    polite: "Others"

    @classmethod
    def of(cls, habit: Habit, seed: int) -> Self:
        return cls(*(Others.of(Beside(habit, seed, is_bad)) for is_bad in (True, False)))

    def costs(self, preset: str, policy: str = ADAPTIVE) -> list[float]:
        """Return the points of hit share that the habit costs the others, for each pool."""
        return [
            self.polite.share(preset, policy, size) - self.bad.share(preset, policy, size)
            for size in SIZES
        ]


@dataclass(frozen=True)
class Others:
    """The traffic, and the requests in it that are not the client's."""

    trace: Trace
    are_theirs: list[bool]

    @classmethod
    def of(cls, traffic: Beside) -> Self:
        recorded = traffic.recorded()
        sessions = (json.loads(line)["session_id"] for line in recorded.lines)
        return cls(recorded.trace(), [not session.startswith(CLIENT) for session in sessions])

    def share(self, preset: str, policy: str, size: float) -> float:
        """Return the hit share, in %, of all requests but the client's."""
        blocks = int(BLOCKS[preset] * size)
        result = play(self.trace, preset_groups(preset), policy, blocks, loop=Loop.OPEN)
        # vLLM's default caches fewer tails, so it may need less than these pools.
        assert result.evictions > 0 or size > 1 or policy != ADAPTIVE
        assert result.rejected_requests == 0
        prompts, _, hits, _ = result.per_request[self.are_theirs].T
        return 100 * int(hits.sum()) / int(prompts.sum())


if __name__ == "__main__":
    sys.exit(main())
