"""Plays traffic in a pool, as every cell does, and stores the results."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kvoxide._core import HostMemory, Serving, Simulation, SimulationResult, StepTime, Trace
from kvoxide.lab.replay.input import (
    DEFAULT_POLICY,
    EVERY_TAIL,
    Groups,
    NamedPolicy,
    parse_policy,
)

from .cells import Loop
from .known import KnownResults, Played, build_digest
from .traffic import Recorded

ADAPTIVE: Final = "adaptive"
WITH_ENDS: Final = "adaptive, ends"  # heeds the ends of sessions where clients say them
CONCURRENCY: Final = 64
MAX_BATCHED_TOKENS: Final = 8192
# 12 ms to the next token, as the generators assume in an open loop.
STEP_TIME: Final = {"base": 0.012, "prefill": 27e-6, "context": 34e-9, "running": 10e-6}


class BuiltOnce:
    """Traffic whose trace is built when the first run needs it."""

    recorded: Recorded

    @cached_property
    def lengths(self) -> list[int]:
        """The tokens of each request."""
        return self.recorded.request_lengths()

    @cached_property
    def digest(self) -> str:
        return self.recorded.digest

    @cached_property
    def trace(self) -> Trace:
        return self.recorded.trace()


@dataclass
class PlayedTraffic(BuiltOnce):
    """Generated traffic and its results. Earlier results are reused: of ``adaptive`` for the same
    build of the core, and of other policies for every build, because no change may change them."""

    known: KnownResults[Played]
    recorded: Recorded

    @cached_property
    def without_ends(self) -> "PlayedTraffic":
        """The same traffic, from clients that do not say where a session ends."""
        recorded = self.recorded.without_session_ends()
        if recorded is self.recorded:
            return self
        return PlayedTraffic(self.known, recorded)

    @cached_property
    def longest(self) -> int:
        """The tokens of the longest request."""
        return max(self.lengths)

    def unlimited(self, groups: Groups, loop: Loop = Loop.CLOSED) -> Played:
        """Return the result with every tail kept, in a pool that holds every block of every
        request."""
        return self.run(groups, EVERY_TAIL, unlimited_blocks(groups, self.lengths), loop)

    def run(self, groups: Groups, policy: str, blocks: int, loop: Loop = Loop.CLOSED) -> Played:
        """Return the result of a run, with the bound for the default policy. Only
        :data:`WITH_ENDS` heeds the ends of sessions."""
        if policy == WITH_ENDS:
            return self._run(groups, ADAPTIVE, blocks, loop)
        played = self.without_ends if policy == ADAPTIVE else self
        return played._run(groups, policy, blocks, loop)

    def _run(self, groups: Groups, policy: str, blocks: int, loop: Loop) -> Played:
        settings = [CONCURRENCY, MAX_BATCHED_TOKENS, *STEP_TIME.values(), loop.value]
        build = [build_digest()] if policy == ADAPTIVE else []
        key = " ".join(map(str, [self.digest, groups.text, policy, blocks, *settings, *build]))
        played = self.known.get(key)
        if played is None:
            has_bound = policy == DEFAULT_POLICY
            played = Played.of(play(self.trace, groups, policy, blocks, loop=loop, bound=has_bound))
            self.known.add(key, played)
        return played


def unlimited_blocks(groups: Groups, lengths: list[int]) -> int:
    """Return the size of a pool that holds every block of every request. Lengths are in tokens."""
    return sum(
        math.ceil(length / group.block_size) + 4 for group in groups.specs for length in lengths
    )


def play(
    trace: Trace,
    groups: Groups,
    policy: str,
    blocks: int,
    *,
    loop: Loop = Loop.CLOSED,
    bound: bool = False,
    speed: float = 1.0,
    host_memory: HostMemory | None = None,
) -> SimulationResult:
    """Play a trace in the way of every cell."""
    named = _policy(policy, groups)
    return Simulation(
        trace,
        groups.specs,
        blocks,
        policy=named.policy,
        baseline=named.baseline,
        concurrency=CONCURRENCY,
        max_batched_tokens=MAX_BATCHED_TOKENS,
        bound=bound,
        serving=Serving(
            step_time=StepTime(**STEP_TIME), speed=speed, closed_loop=loop is Loop.CLOSED
        ),
        host_memory=host_memory,
    ).run()


def _policy(name: str, groups: Groups) -> NamedPolicy:
    """Return the policy, with an interval that is a multiple of the block sizes."""
    kind, _, interval = name.partition("interval=")
    if interval and not kind:
        alignment = math.lcm(*(group.block_size for group in groups.specs))
        name = f"interval={int(interval) // alignment * alignment}"
    return parse_policy(name)
