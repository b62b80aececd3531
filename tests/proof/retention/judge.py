"""Plays the cells."""

import math
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kvoxide._core import Policy, Serving, Simulation, SimulationResult, StepTime, Trace
from kvoxide.lab.replay.input import (
    DEFAULT_POLICY,
    EVERY_TAIL,
    UNLIMITED,
    Groups,
    parse_policy,
    preset_groups,
)

from .cells import PERCENTS, Traffics, Whole, has_room, pool_size
from .known import KnownResults, Played, build_digest
from .traffic import Recorded

ADAPTIVE: Final = "adaptive"
POLICIES: Final = (DEFAULT_POLICY, EVERY_TAIL, "pin", "interval=8192", ADAPTIVE)
CONCURRENCY: Final = 64
MAX_BATCHED_TOKENS: Final = 8192
# 12 ms to the next token: the generators assume this time before a user continues.
STEP_TIME: Final = {"base": 0.012, "prefill": 27e-6, "context": 34e-9, "running": 10e-6}


@dataclass(frozen=True)
class Cell:
    """One workload, seed, preset and pool size, and the hit shares (in %) of the policies."""

    workload: str
    seed: int
    half: str
    preset: str
    percent: int
    blocks: int
    shares: dict[str, float]
    preemptions: dict[str, int]
    changed_early: bool

    def __str__(self) -> str:
        return f"{self.workload}, seed {self.seed}, {self.preset}, {self.blocks:,} blocks"


@dataclass
class Judge:
    """Plays cells, and reuses earlier results. ``adaptive`` is reused for the same build of the
    core. Other policies are reused for every build, because no change may change them."""

    known: KnownResults
    presets: Sequence[str]
    policies: Sequence[str] = POLICIES
    percents: Sequence[int] = PERCENTS
    whole: Whole = Whole.CACHED
    has_bound: bool = False

    def cells(self, traffics: Sequence[Traffics], jobs: int) -> Iterator[Cell]:
        """Yield the cells of all traffics, in order, as they are done."""
        with ThreadPoolExecutor(jobs) as pool:
            for number, cells in enumerate(pool.map(self._cells_of, traffics), start=1):
                if sys.stderr.isatty():
                    print(f"\r{number} of {len(traffics)}", end="", file=sys.stderr, flush=True)
                yield from cells

    def _cells_of(self, traffic: Traffics) -> list[Cell]:
        played = _Traffic(self.known, traffic.workload.recorded(traffic.seed))
        return [
            cell
            for preset in self.presets
            for percent in self.percents
            if (cell := self._cell(traffic, played, preset, percent)) is not None
        ]

    def _cell(
        self, traffic: Traffics, played: "_Traffic", preset: str, percent: int
    ) -> Cell | None:
        groups = preset_groups(preset)
        unlimited = played.unlimited(groups)
        is_cached = self.whole is Whole.CACHED
        num_blocks = unlimited.cached_blocks if is_cached else played.num_distinct_blocks(groups)
        blocks = pool_size(num_blocks, percent)
        if not has_room(blocks, unlimited.peak_used_blocks):
            return None
        results = {
            policy: played.run(groups, policy, blocks)
            for policy in self.policies
            if _differs(policy, groups)
        }
        shares = {policy: result.hit_share for policy, result in results.items()}
        if self.has_bound:
            shares["bound"] = played.bound(groups, blocks)
        adaptive = results.get(ADAPTIVE)
        return Cell(
            workload=traffic.workload.name,
            seed=traffic.seed,
            half=traffic.half.value,
            preset=preset,
            percent=percent,
            blocks=blocks,
            shares=shares | {UNLIMITED: unlimited.hit_share},
            preemptions={policy: result.preemptions for policy, result in results.items()},
            changed_early=adaptive is not None and adaptive.changed_early,
        )


class _Traffic:
    """Generated traffic, whose trace is built when the first run needs it."""

    def __init__(self, known: KnownResults, recorded: Recorded) -> None:
        self._known_results = known
        self._recorded = recorded
        self._digest = recorded.digest
        self._lengths = recorded.request_lengths()

    @cached_property
    def _trace(self) -> Trace:
        return self._recorded.trace()

    @cached_property
    def _num_distinct_tokens(self) -> int:
        return self._recorded.num_distinct_tokens()

    def num_distinct_blocks(self, groups: Groups) -> int:
        """Return how many blocks all distinct tokens have in the group with the largest blocks."""
        return self._num_distinct_tokens // max(group.block_size for group in groups.specs)

    def unlimited(self, groups: Groups) -> Played:
        """Return the result with every tail kept, in a pool that holds every block of every
        request."""
        return self.run(groups, EVERY_TAIL, unlimited_blocks(groups, self._lengths))

    def bound(self, groups: Groups, blocks: int) -> float:
        """Return what a policy that knows the future could hit, in %, under the default's
        schedule."""
        played = self.run(groups, DEFAULT_POLICY, blocks, bound=True)
        assert played.bound_tokens is not None
        return 100 * played.bound_tokens / played.prompt_tokens

    def run(self, groups: Groups, policy: str, blocks: int, *, bound: bool = False) -> Played:
        settings = [CONCURRENCY, MAX_BATCHED_TOKENS, *STEP_TIME.values(), bound]
        build = [build_digest()] if policy == ADAPTIVE else []
        key = " ".join(map(str, [self._digest, groups.text, policy, blocks, *settings, *build]))
        played = self._known_results.get(key)
        if played is None:
            played = self._played(groups, policy, blocks, bound=bound)
            self._known_results.add(key, played)
        return played

    def _played(self, groups: Groups, policy: str, blocks: int, *, bound: bool = False) -> Played:
        result = play(self._trace, groups, policy, blocks, bound=bound)
        return Played(
            prompt_tokens=result.prompt_tokens,
            hit_tokens=result.hit_tokens,
            rejected_requests=result.rejected_requests,
            preemptions=result.preemptions,
            peak_used_blocks=result.peak_used_blocks,
            cached_blocks=result.cached_blocks,
            changed_early=_changed_early(result),
            bound_tokens=result.bound_hit_tokens,
        )


def unlimited_blocks(groups: Groups, lengths: Sequence[int]) -> int:
    """Return the size of a pool that holds every block of every request. Lengths are in tokens."""
    return sum(
        math.ceil(length / group.block_size) + 4 for group in groups.specs for length in lengths
    )


def play(
    trace: Trace, groups: Groups, policy: str, blocks: int, *, bound: bool = False
) -> SimulationResult:
    """Play a trace in the way of every cell."""
    return Simulation(
        trace,
        groups.specs,
        blocks,
        policy=_policy(policy, groups),
        concurrency=CONCURRENCY,
        max_batched_tokens=MAX_BATCHED_TOKENS,
        bound=bound,
        serving=Serving(step_time=StepTime(**STEP_TIME), speed=1.0),
    ).run()


def _policy(name: str, groups: Groups) -> Policy:
    """Return the policy, with an interval that is a multiple of the block sizes."""
    kind, _, interval = name.partition("interval=")
    if interval and not kind:
        alignment = math.lcm(*(group.block_size for group in groups.specs))
        name = f"interval={int(interval) // alignment * alignment}"
    return parse_policy(name).policy


def _differs(policy: str, groups: Groups) -> bool:
    """Return whether the policy can differ from the default. It can only if there are tails or
    states."""
    has_only_full = all(group.kind == "full_attention" for group in groups.specs)
    return policy in (DEFAULT_POLICY, ADAPTIVE) or not has_only_full


def _changed_early(result: SimulationResult) -> bool:
    """Return whether the scoring function changed between two points of the run before its first
    eviction."""
    points = zip(result.retention_timeline.tolist(), result.scoring_functions, strict=True)
    return len({function for row, function in points if row[8] + row[9] == 0}) > 1
