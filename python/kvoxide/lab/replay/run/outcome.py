"""Describe one run and its outcome."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvoxide._core import Simulation, SimulationResult, Trace
from kvoxide.lab.replay.input import Host, NamedPolicy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
from kvoxide.lab.replay.run.workload import Workload


@dataclass(frozen=True)
class Run:
    """One simulation to be done.

    ``blocks`` is the pool size, None for a pool that never evicts. ``host`` is the CPU memory, if
    there is any. With ``is_joined``, the pool has the blocks of both sizes, and there is no CPU
    memory.
    """

    workload: Workload
    policy: NamedPolicy
    blocks: int | None
    host: Host | None = None
    is_joined: bool = False

    @property
    def name(self) -> str:
        """The name of the line in tables: the policy, and the CPU memory."""
        if self.host is None:
            return self.policy.name
        if self.is_joined:
            return f"{self.policy.name}, one pool including {self.host.name}"
        return f"{self.policy.name} + {self.host.name}"

    @property
    def pool_blocks(self) -> int | None:
        """The blocks of the simulated pool."""
        return self.blocks_of_both if self.is_joined else self.blocks

    @property
    def blocks_of_both(self) -> int | None:
        """The blocks of pool and CPU memory; None for a pool that never evicts."""
        if self.blocks is None or self.host is None:
            return self.blocks
        return self.blocks + self.host.memory.num_chunks

    def simulation(self, trace: Trace) -> Simulation:
        """Return a simulation of ``trace``, which is the workload's."""
        policy, release = self.policy, self.policy.release
        rules = None if release is None else release.manager_rules
        memory = None if self.host is None or self.is_joined else self.host.memory
        return self.workload.simulation(
            trace, policy.policy, self.pool_blocks, policy.baseline, rules, memory
        )


@dataclass(frozen=True)
class Outcome:
    """A run and what came of it; or what could have come of it, if ``schedule_of`` names the policy
    whose schedule that is for."""

    run: Run
    result: SimulationResult
    schedule_of: str | None = None

    @property
    def is_bound(self) -> bool:
        """Whether this is what could have been hit; such an outcome has no pool to tell of."""
        return self.schedule_of is not None

    @property
    def hit_tokens(self) -> int:
        """Prompt tokens that were hit, or could have been."""
        bound = self.result.bound_hit_tokens if self.is_bound else None
        return self.result.hit_tokens if bound is None else bound

    @property
    def hit_share(self) -> float:
        """Hit tokens per prompt token, 0.0 to 1.0."""
        return self.hit_tokens / max(1, self.result.prompt_tokens)

    @property
    def name(self) -> str:
        """The name of the outcome's line in tables."""
        return self.run.name

    @property
    def loaded_share(self) -> float | None:
        """Tokens that were loaded from CPU memory, per prompt token (0.0 to 1.0); None without CPU
        memory."""
        if self.is_bound or self.result.host_memory is None:
            return None
        return self.result.loaded_tokens / max(1, self.result.prompt_tokens)

    @property
    def answer_share(self) -> float | None:
        """Tokens hit in blocks with generated tokens, per prompt token (0.0 to 1.0); None where
        they are not counted."""
        tokens = None if self.is_bound else self.result.hit_answer_tokens
        return None if tokens is None else tokens / max(1, self.result.prompt_tokens)

    @property
    def loss_shares(self) -> list[float] | None:
        """Why the rest of the prompt tokens was not hit, as shares of all of them (0.0 to 1.0):
        evicted blocks of full attention, evicted windows and states, never cached, computed for the
        first time. None for what could have been hit."""
        if self.is_bound:
            return None
        num_prompt_tokens = max(1, self.result.prompt_tokens)
        return [tokens / num_prompt_tokens for tokens in self.result.loss_tokens]

    @property
    def per_request(self) -> "NDArray[np.int64]":
        """The result's ``per_request``, with the hits of this outcome."""
        rows = self.result.per_request
        bound = self.result.bound_per_request if self.is_bound else None
        if bound is not None:
            rows[:, 2] = bound
        return rows

    @property
    def wall_seconds(self) -> float:
        """Time of the run, or of finding the bound."""
        bound = self.result.bound_seconds if self.is_bound else None
        return self.result.wall_seconds if bound is None else bound

    @property
    def is_unlimited(self) -> bool:
        """Whether the pool never evicts."""
        return self.run.blocks is None

    @property
    def has_pool(self) -> bool:
        """Whether the outcome has a pool with evictions, not only hits."""
        return not (self.is_unlimited or self.is_bound)

    @property
    def peak_used_share(self) -> float:
        """Peak use of the pool without its null block, 0.0 to 1.0."""
        return self.result.peak_used_blocks / max(1, (self.run.pool_blocks or 0) - 1)
