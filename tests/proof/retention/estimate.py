"""``python -m tests.proof.retention.estimate [PRESET...]``: measures the error of adaptive
retention's estimate of the default's hits, in points of hit share, over cells of the judge."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kvoxide.lab.replay.input import DEFAULT_POLICY, preset_groups

from .cells import PRESETS, SHARES, Half, chosen
from .known import KnownResults, Played, default_path
from .playing import ADAPTIVE, PlayedTraffic, play
from .pools import chosen_pools

SEED: Final = 1


@dataclass(frozen=True)
class Estimate:
    """Hit shares in %: the estimate, the default's hits, and the hits of ``adaptive``."""

    cell: str
    estimated: float
    default: float
    adaptive: float

    @property
    def error(self) -> float:
        return self.estimated - self.default


def main() -> int:
    for preset in sys.argv[1:] or PRESETS:
        estimates = list(_estimates(preset))
        print(_row(preset, estimates), flush=True)
        furthest = max(estimates, key=lambda estimate: abs(estimate.error))
        print(f"  furthest off: {furthest}", flush=True)
    return 0


def _estimates(preset: str) -> Iterator[Estimate]:
    groups = preset_groups(preset)
    known = KnownResults(default_path(), Played)
    for traffic in chosen(list(Half), seeds=[SEED]):
        played = PlayedTraffic(known, traffic.workload.recorded(traffic.seed))
        for pool in chosen_pools(played, groups, SHARES):
            default = played.run(groups, DEFAULT_POLICY, pool.blocks)
            adaptive = play(played.trace, groups, ADAPTIVE, pool.blocks)
            assert adaptive.default_hit_tokens is not None
            tokens = (adaptive.default_hit_tokens, default.hit_tokens, adaptive.hit_tokens)
            shares = [100 * each / adaptive.prompt_tokens for each in tokens]
            yield Estimate(f"{traffic.workload.name}, {pool.share} %", *shares)


def _row(preset: str, estimates: Sequence[Estimate]) -> str:
    errors = [estimate.error for estimate in estimates]
    within = [sum(abs(error) <= points for error in errors) / len(errors) for points in (1, 2, 3)]
    shares = " | ".join(f"{share:.0%}" for share in within)
    mean, lowest, highest = sum(errors) / len(errors), min(errors), max(errors)
    return f"| {preset} | {len(errors)} | {shares} | {mean:+.1f} | {lowest:+.1f} | {highest:+.1f} |"


if __name__ == "__main__":
    sys.exit(main())
