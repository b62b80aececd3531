"""The two published experiments, as workloads with known prefixes.

``prefixes``: many long prefixes take turns, so that recency alone keeps the wrong ones.
``long-contexts``: long prompts come back shortened, so that their tails must have been kept at
more places than the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from kvoxide._core import KVCacheGroupSpec, Trace
from kvoxide.lab.replay.input import Groups, NamedPolicy, preset_groups
from kvoxide.lab.replay.run.outcome import Run
from kvoxide.lab.replay.run.planning import plan_runs
from kvoxide.lab.replay.run.workload import SharedTrace, Workload

MAX_BATCHED_TOKENS = 8192
# Token ids from one start to the next; prompts are shorter, so none shares a token.
_ID_STRIDE = 2**21


class Experiment(Protocol):
    """Workloads that differ in one quantity, played with each policy, one request at a time."""

    @property
    def key(self) -> str:
        """The quantity's name in a row."""

    @property
    def x_name(self) -> str:
        """The quantity's name on an axis."""

    @property
    def xs(self) -> Sequence[int]:
        """The quantity's values."""

    @property
    def groups(self) -> Groups:
        """The KV cache groups."""

    @property
    def pool_blocks(self) -> int:
        """The size of the pool in blocks."""

    def num_warming(self, x: int) -> int:
        """How many requests only warm the cache; as many again are counted."""

    def trace(self, x: int) -> Trace:
        """The requests at one value of the quantity."""


@dataclass(frozen=True)
class Prefixes:
    """Requests that begin with one of a number of shared prefixes, in turns; two passes.

    Lengths are in tokens. Every request has ``own_tokens`` of its own after its prefix.
    """

    key: ClassVar[str] = "prefixes"
    x_name: ClassVar[str] = "shared prefixes"

    xs: Sequence[int] = (15, 20, 30, 60)
    prefix_tokens: int = 28_000
    own_tokens: int = 200
    groups: Groups = field(default_factory=lambda: preset_groups("gemma-3"))
    pool_blocks: int = 189_245

    def num_warming(self, x: int) -> int:
        """One request per prefix."""
        return x

    def trace(self, x: int) -> Trace:
        """Two passes over ``x`` prefixes in the same order."""
        trace = Trace()
        for index in range(2 * x):
            prefix = _tokens(index % x, self.prefix_tokens)
            own = _tokens(x + index, self.own_tokens)
            trace.push_prompt(np.concatenate((prefix, own)), 1)
        return trace


@dataclass(frozen=True)
class LongContexts:
    """Distinct prompts, then the same prompts again, cut to a percentage of their length.

    The pool is ``pool_requests`` times what vLLM reserves for one full prompt of
    ``prompt_tokens``.
    """

    key: ClassVar[str] = "percent"
    x_name: ClassVar[str] = "percent of the prompt that is repeated"

    xs: Sequence[int] = tuple(range(100, 0, -10))
    num_prompts: int = 14
    prompt_tokens: int = 1_000_000
    groups: Groups = field(default_factory=lambda: preset_groups("deepseek-v4"))
    pool_requests: float = 14.5

    @property
    def pool_blocks(self) -> int:
        """The size of the pool in blocks."""
        reserved = sum(reserved_blocks(spec, self.prompt_tokens) for spec in self.groups.specs)
        return int(self.pool_requests * reserved)

    def num_warming(self, x: int) -> int:
        """All full prompts, whatever the percentage."""
        return self.num_prompts

    def trace(self, x: int) -> Trace:
        """The full prompts, then ``x`` percent of each."""
        trace = Trace()
        for percent in (100, x):
            for prompt in range(self.num_prompts):
                trace.push_prompt(_tokens(prompt, self.prompt_tokens * percent // 100), 1)
        return trace


def reserved_blocks(spec: KVCacheGroupSpec, num_tokens: int) -> int:
    """The blocks that vLLM sets aside in one group for one request of ``num_tokens``.

    A window group never holds more than its window, one step's tokens, and a block more because
    a window need not begin at a block's edge.
    """
    if spec.sliding_window is None:
        return -(-num_tokens // spec.block_size)
    return -(-(spec.sliding_window - 1 + MAX_BATCHED_TOKENS) // spec.block_size) + 1


def plan_experiment(experiment: Experiment, policies: Sequence[NamedPolicy]) -> list[Run]:
    """The runs of an experiment: for every value, every policy and the unlimited pool."""
    runs: list[Run] = []
    for x in experiment.xs:
        num_warming = experiment.num_warming(x)
        workload = Workload(
            SharedTrace(2 * num_warming, partial(experiment.trace, x)),
            experiment.groups.specs,
            concurrency=1,
            max_batched_tokens=MAX_BATCHED_TOKENS,
            report_from=num_warming,
            quantity=x,
        )
        runs += plan_runs(workload, policies, [experiment.pool_blocks])
    return runs


def _tokens(prompt: int, count: int) -> NDArray[np.int64]:
    """``count`` token ids that no other prompt number has."""
    return np.arange(prompt * _ID_STRIDE, prompt * _ID_STRIDE + count, dtype=np.int64)
