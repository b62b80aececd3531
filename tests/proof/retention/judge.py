"""Judges cells: plays all policies in the chosen pools, in both loops."""

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kvoxide.lab.replay.input import CLAIRVOYANT, DEFAULT_POLICY, UNLIMITED, Groups, preset_groups
from kvoxide.vllm.environment.settings import BASELINES

from .cells import SHARES, Loop, Traffics
from .known import KnownResults, Played
from .playing import ADAPTIVE, WITH_ENDS, PlayedTraffic
from .pools import Pool, chosen_pools, sizes_of

C = TypeVar("C")

POLICIES: Final = (DEFAULT_POLICY, *BASELINES, ADAPTIVE, WITH_ENDS)


@dataclass(frozen=True)
class Cell:
    """One workload, seed, preset, pool and loop, and the hit shares (in %) of the policies.

    ``pool`` is the share by which the pool was chosen. ``shares`` has no ``adaptive, ends`` if no
    client says where a session ends. First-token times are the median and the
    99th percentile, in seconds.
    """

    workload: str
    kind: str
    seed: int
    half: str
    preset: str
    pool: int
    blocks: int
    loop: str
    shares: dict[str, float]
    first_token: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f"{self.workload}, seed {self.seed}, {self.preset}, {self.blocks:,} blocks"
        return f"{where}, {self.loop}"


def in_order(
    judge: Callable[[Traffics], list[C]], traffics: Sequence[Traffics], jobs: int
) -> Iterator[list[C]]:
    """Yield the cells of each traffic, in order, as they are done. ``jobs`` traffics are judged at
    a time."""
    with ThreadPoolExecutor(jobs) as pool:
        for number, cells in enumerate(pool.map(judge, traffics), start=1):
            if sys.stderr.isatty():
                print(f"\r{number} of {len(traffics)}", end="", file=sys.stderr, flush=True)
            yield cells


@dataclass
class Judge:
    """Plays cells. With ``sweeps``, the pools are all sizes that :mod:`.pools` considers."""

    known: KnownResults[Played]
    presets: Sequence[str]
    policies: Sequence[str] = POLICIES
    shares: Sequence[int] = SHARES
    loops: Sequence[Loop] = tuple(Loop)
    multiples: Sequence[float] = (1.0,)
    sweeps: bool = False

    def cells(self, traffics: Sequence[Traffics], jobs: int) -> Iterator[Cell]:
        """Yield the cells of all traffics, in order, as they are done."""
        for cells in in_order(self._cells_of, traffics, jobs):
            yield from cells

    def _cells_of(self, traffic: Traffics) -> list[Cell]:
        played = PlayedTraffic(self.known, traffic.workload.recorded(traffic.seed))
        cells = []
        for preset in self.presets:
            groups = preset_groups(preset)
            for pool in self._pools(played, groups):
                in_loops = [self._cell(traffic, played, preset, pool, loop) for loop in self.loops]
                # Both loops have the same cells, so that their tables can be compared.
                if None not in in_loops:
                    cells += [cell for cell in in_loops if cell is not None]
        return cells

    def _pools(self, played: PlayedTraffic, groups: Groups) -> list[Pool]:
        if self.sweeps:
            return [Pool(0, blocks) for blocks in sizes_of(played, groups)]
        pools = chosen_pools(played, groups, self.shares)
        return [
            Pool(pool.share, round(pool.blocks * multiple))
            for pool in pools
            for multiple in self.multiples
        ]

    def _cell(
        self, traffic: Traffics, played: PlayedTraffic, preset: str, pool: Pool, loop: Loop
    ) -> Cell | None:
        """Return the cell, or None if the pool rejects a request under any policy."""
        groups = preset_groups(preset)
        says_ends = played.without_ends is not played
        policies = [policy for policy in self.policies if says_ends or policy != WITH_ENDS]
        results = {policy: played.run(groups, policy, pool.blocks, loop) for policy in policies}
        if any(result.rejected_requests for result in results.values()):
            return None
        shares = {policy: result.hit_share for policy, result in results.items()}
        default = results[DEFAULT_POLICY]
        assert default.bound_tokens is not None
        shares[CLAIRVOYANT] = 100 * default.bound_tokens / default.prompt_tokens
        shares[UNLIMITED] = played.unlimited(groups).hit_share
        return Cell(
            workload=traffic.workload.name,
            kind=traffic.workload.kind,
            seed=traffic.seed,
            half=traffic.half.value,
            preset=preset,
            pool=pool.share,
            blocks=pool.blocks,
            loop=loop.value,
            shares=shares,
            first_token={policy: _first_token(result) for policy, result in results.items()},
        )


def _first_token(result: Played) -> tuple[float, float]:
    return result.first_token_p50, result.first_token_p99
