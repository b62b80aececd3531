"""Independent simulations: what is played, and what came of it."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kvoxide._core import (
    ConfigError,
    KVCacheGroupSpec,
    Policy,
    Serving,
    Simulation,
    SimulationResult,
    Trace,
)
from kvoxide.replay.policies import UNLIMITED, NamedPolicy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class SharedTrace:
    """A trace that is built when the first of its users needs it and let go after the last one.

    Pickled, it takes the trace along and has no users.
    """

    def __init__(self, num_requests: int, build: Callable[[], Trace]) -> None:
        """``num_requests`` is the length of what ``build`` will return."""
        self.num_requests = num_requests
        self._build = build
        self._lock = threading.Lock()
        self._users = 0
        self._trace: Trace | None = None

    def add_user(self) -> None:
        """Announce one more :meth:`borrowed`."""
        self._users += 1

    @contextmanager
    def borrowed(self) -> Iterator[Trace]:
        """The trace, for one user that was announced with :meth:`add_user`."""
        with self._lock:
            if self._trace is None:
                self._trace = self._build()
            trace = self._trace
        try:
            yield trace
        finally:
            self.drop_user()

    def drop_user(self) -> None:
        """One user that was announced needs it no more."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._trace = None

    @classmethod
    def of(cls, trace: Trace) -> "SharedTrace":
        """A trace that is there."""
        return cls(len(trace), lambda: trace)

    def __reduce__(self) -> tuple[Callable[[Trace], "SharedTrace"], tuple[Trace]]:
        """The trace, built if it is not there."""
        with self._lock:
            return SharedTrace.of, (self._trace or self._build(),)


@dataclass(frozen=True)
class Workload:
    """What is played, and how it is scheduled; the same for every policy that is compared.

    ``concurrency`` is in requests, ``max_batched_tokens`` in tokens per step; requests before
    ``report_from`` (0-based) only warm the cache. ``quantity`` is the workload's place on an
    experiment's axis. ``has_bound`` is whether the results tell what could have been hit.
    ``serving`` is how time passes, None where none does. With ``follows_schedule``, requests run in
    the steps of the server that was recorded, if the trace has them; ``rules`` are what that
    server's scheduler told its manager. Without ``prefix_caching`` nothing is hit.
    """

    trace: SharedTrace
    groups: tuple[KVCacheGroupSpec, ...]
    concurrency: int
    max_batched_tokens: int
    report_from: int = 0
    quantity: int = 0
    has_bound: bool = False
    serving: Serving | None = None
    follows_schedule: bool = False
    rules: Mapping[str, Any] | None = None
    prefix_caching: bool = True

    def simulation(self, trace: Trace, policy: Policy, blocks: int | None) -> Simulation:
        """A simulation of ``trace`` under this workload's settings."""
        return Simulation(
            trace,
            self.groups,
            blocks,
            policy=policy,
            concurrency=self.concurrency,
            max_batched_tokens=self.max_batched_tokens,
            report_from=self.report_from,
            bound=self.has_bound,
            serving=self.serving,
            follows_schedule=self.follows_schedule and trace.has_schedule,
            rules=self.rules,
            enable_caching=self.prefix_caching,
        )


@dataclass(frozen=True)
class Run:
    """One simulation to be done. ``blocks`` is the pool size, None for a pool that never evicts."""

    workload: Workload
    policy: NamedPolicy
    blocks: int | None


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
        """Whether there is anything of a pool to tell, beside hits."""
        return not (self.is_unlimited or self.is_bound)

    @property
    def peak_used_share(self) -> float:
        """Peak use of the pool without its null block, 0.0 to 1.0."""
        return self.result.peak_used_blocks / max(1, (self.run.blocks or 0) - 1)


def plan_runs(
    workload: Workload, policies: Sequence[NamedPolicy], pool_sizes: Sequence[int]
) -> list[Run]:
    """Every policy in every pool (sizes in blocks), and the pool that never evicts."""
    runs = [Run(workload, policy, blocks) for policy in policies for blocks in pool_sizes]
    runs.append(Run(workload, NamedPolicy(UNLIMITED, Policy()), None))
    for _ in runs:
        workload.trace.add_user()
    return runs


def playable_policies(runs: Iterable[Run]) -> tuple[tuple[NamedPolicy, ...], tuple[str, ...]]:
    """Returns the policies of runs that go together with all their groups and pools, and why the
    others are left out, which lines on standard error say too.

    Raises :class:`~kvoxide._core.ConfigError` if no policy is left.
    """
    policies: dict[str, NamedPolicy] = {}
    refused: dict[str, ConfigError] = {}
    for run in runs:
        policies[run.policy.name] = run.policy
        try:
            check_run(run)
        except ConfigError as error:
            refused.setdefault(run.policy.name, error)
    playable = tuple(policy for name, policy in policies.items() if name not in refused)
    if refused and not playable:
        raise next(iter(refused.values()))
    left_out = tuple(f"{why}; this policy is left out" for why in refused.values())
    for why in left_out:
        click.echo(why, err=True)
    return playable, left_out


def check_run(run: Run) -> None:
    """Find out whether groups, policy and pool go together, by a run of one token.

    Raises :class:`~kvoxide._core.ConfigError` that names the policy.
    """
    trace = Trace()
    trace.start_part(instance=0)
    trace.push_prompt([0], 1, arrival=0.0)
    try:
        run.workload.simulation(trace, run.policy.policy, run.blocks).run()
    except (ConfigError, OverflowError) as error:
        raise ConfigError(f"policy {run.policy.name!r}: {error}") from error
