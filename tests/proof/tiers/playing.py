"""Plays a cell of two tiers, and stores the results."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
from kvoxide._core import SimulationResult
from kvoxide.lab.replay.input import DEFAULT_POLICY, Groups

from tests.proof.retention.known import KnownResults, Played, build_digest
from tests.proof.retention.playing import (
    ADAPTIVE,
    CONCURRENCY,
    MAX_BATCHED_TOKENS,
    STEP_TIME,
    BuiltOnce,
    play,
    unlimited_blocks,
)
from tests.proof.retention.traffic import Recorded

from .sizes import Size
from .variants import TOKEN_BYTES, Variant

IN_USE: Final = 0.3  # of the pool, by requests that run
_LEAST_SPEED: Final = 0.001


@dataclass(frozen=True, kw_only=True)
class PlayedTiers(Played):
    """The result of a run, with the counts of CPU memory. They are 0 without it."""

    used_blocks: float  # by requests that run, in the mean
    preemptions: int
    first_token_mean: float
    loaded_tokens: int
    stored_chunks: int = 0
    loaded_chunks: int = 0
    held_twice: float | None = None
    without_tail_tokens: int = 0

    @classmethod
    def of_run(cls, result: SimulationResult, blocks: int) -> "PlayedTiers":
        assert result.serving is not None
        moments, used = result.serving.moments, result.timeline[:, 1]
        waits = moments[:, 1] - moments[:, 0]
        host = result.host_memory
        counts = {} if host is None else {name: getattr(host, name) for name in _COUNTS}
        return cls(
            **asdict(Played.of(result)),
            used_blocks=blocks * float(used.mean()) if len(used) else 0.0,
            preemptions=result.preemptions,
            first_token_mean=float(np.nanmean(waits)) if not np.isnan(waits).all() else 0.0,
            loaded_tokens=result.loaded_tokens,
            held_twice=None if host is None else host.held_twice_share,
            **counts,
        )


_COUNTS: Final = ("stored_chunks", "loaded_chunks", "without_tail_tokens")


@dataclass(frozen=True)
class Memory:
    """Both tiers in blocks, and the speed of the traffic there."""

    blocks: int
    chunks: int
    speed: float


@dataclass
class TieredTraffic(BuiltOnce):
    """Traffic and its results. Earlier results are reused: of ``adaptive`` in any tier for the same
    build of the core, and of vLLM's policies for every build.

    If ``gpu_build`` names another build, results of ``adaptive`` on the GPU alone are its results.
    This saves time while only the policy of CPU memory changes.
    """

    known: KnownResults[PlayedTiers]
    recorded: Recorded
    gpu_build: str

    def memory(self, groups: Groups, size: Size) -> Memory:
        """Return both tiers, and the speed at which requests that run use about 30 % of the pool,
        but at most 1."""
        whole = self._unlimited(groups)
        blocks = size.blocks(whole.cached_blocks)
        speed = min(1.0, round(IN_USE * blocks / max(1.0, whole.used_blocks), 3))
        return Memory(blocks, size.chunks(whole.cached_blocks), max(_LEAST_SPEED, speed))

    def _unlimited(self, groups: Groups) -> PlayedTiers:
        """Return the result of vLLM's default in a pool without evictions."""
        blocks = unlimited_blocks(groups, self.lengths)
        return self.run(groups, Variant(DEFAULT_POLICY), Memory(blocks, 0, 1.0))

    def run(self, groups: Groups, variant: Variant, memory: Memory) -> PlayedTiers:
        """Return the result of a run in a closed loop."""
        key = " ".join(map(str, self._key(groups, variant, memory)))
        played = self.known.get(key)
        if played is None:
            played = self._play(groups, variant, memory)
            self.known.add(key, played)
        return played

    def _play(self, groups: Groups, variant: Variant, memory: Memory) -> PlayedTiers:
        blocks = memory.blocks + (memory.chunks if variant.joined else 0)
        result = play(
            self.trace,
            groups,
            variant.gpu,
            blocks,
            speed=memory.speed,
            host_memory=variant.memory(memory.chunks, _block_size(groups)),
        )
        return PlayedTiers.of_run(result, blocks)

    def _key(self, groups: Groups, variant: Variant, memory: Memory) -> Sequence[object]:
        settings = (CONCURRENCY, MAX_BATCHED_TOKENS, *STEP_TIME.values(), TOKEN_BYTES)
        chunks = memory.chunks if variant.host or variant.joined else 0
        tiers = (memory.blocks, chunks, memory.speed)
        build: tuple[str, ...] = ()
        if variant.host == ADAPTIVE:
            build = (build_digest(),)
        elif variant.gpu == ADAPTIVE:
            build = (self.gpu_build,)
        return (self.digest, groups.text, repr(variant), *tiers, *settings, *build)


def _block_size(groups: Groups) -> int:
    """Return the tokens of the largest block, for which a chunk has room."""
    return max(spec.block_size for spec in groups.specs)
