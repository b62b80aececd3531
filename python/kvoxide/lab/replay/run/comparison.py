"""Play one trace with several policies and pool sizes."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvoxide._core import Serving, Trace
from kvoxide.lab.model import hit_tokens
from kvoxide.lab.replay.input import Groups, Host, NamedPolicy, TraceFile
from kvoxide.lab.replay.run.bound import clairvoyant_outcomes
from kvoxide.lab.replay.run.execution import Incomplete, Place
from kvoxide.lab.replay.run.outcome import Outcome
from kvoxide.lab.replay.run.planning import check_run, plan_runs, playable_policies
from kvoxide.lab.replay.run.progress import execute_watched
from kvoxide.lab.replay.run.workload import SharedTrace, Workload
from kvoxide.lab.replay.serving import StepFit
from kvoxide.lab.replay.setup import ServedModel


@dataclass(frozen=True)
class Settings:
    """The settings with which a trace is played.

    Pool sizes are in blocks, ``concurrency`` in requests, ``max_batched_tokens`` in tokens per
    step. ``has_bound`` adds the bound of each run. ``served`` is the model that groups and pool
    sizes belong to, or None. ``serving`` says how time passes, or is None; ``fit`` describes the
    steps that its step times were fitted to. ``left_out`` says which policies are not played, and
    why. ``hosts`` are the CPU memories to play, None for none. :class:`Workload` describes
    ``follows_schedule``, ``rules`` and ``prefix_caching``.
    """

    groups: Groups
    pool_sizes: tuple[int, ...]
    policies: tuple[NamedPolicy, ...]
    concurrency: int
    max_batched_tokens: int
    has_bound: bool = False
    served: ServedModel | None = None
    serving: Serving | None = None
    fit: StepFit | None = None
    left_out: tuple[str, ...] = ()
    follows_schedule: bool = False
    rules: Mapping[str, Any] | None = None
    prefix_caching: bool = True
    hosts: tuple[Host | None, ...] = (None,)

    @property
    def hit_tokens(self) -> int | None:
        """The tokens that hits are multiples of; None without prefix caching."""
        return hit_tokens(self.groups.specs) if self.prefix_caching else None

    def workload(self, trace: Trace) -> Workload:
        """The trace under these settings."""
        return Workload(
            SharedTrace.of(trace),
            self.groups.specs,
            self.concurrency,
            self.max_batched_tokens,
            has_bound=self.has_bound,
            serving=self.serving,
            follows_schedule=self.follows_schedule,
            rules=self.rules,
            prefix_caching=self.prefix_caching,
        )

    def playable(self) -> "Settings":
        """Returns the settings with the policies that go together with groups and pools.

        Raises :class:`~kvoxide._core.ConfigError` if no policy does.
        """
        *in_pools, unlimited = plan_runs(self.workload(Trace()), self.policies, self.pool_sizes)
        playable, left_out = playable_policies(in_pools)
        check_run(unlimited)
        for host in self.hosts:
            if host is not None:
                check_run(replace(in_pools[0], policy=playable[0], host=host))
        return replace(self, policies=playable, left_out=left_out)


@dataclass(frozen=True)
class Comparison:
    """A trace that was played; ``run_seconds`` is the wall time of all ``num_runs`` together, and
    ``failure`` why ``num_missing`` more could not be done."""

    settings: Settings
    trace_file: TraceFile
    outcomes: list[Outcome]
    run_seconds: float
    num_missing: int = 0
    failure: Incomplete | None = None

    @property
    def num_runs(self) -> int:
        """How many runs there were; a bound is none."""
        return sum(not outcome.is_bound for outcome in self.outcomes)

    @property
    def takes_recorded_times(self) -> bool:
        """Whether steps of a recorded server should take the time that they took there."""
        serving = self.settings.serving
        return self.settings.follows_schedule and serving is not None and serving.as_recorded

    @property
    def has_times(self) -> bool:
        """Whether the clock showed anything."""
        timed = (outcome.result.serving for outcome in self.outcomes if not outcome.is_bound)
        return any(result.total.makespan_seconds for result in timed if result is not None)

    @property
    def duration(self) -> str:
        """How long reading and playing took."""
        return (
            f"read in {self.trace_file.read_seconds:.2f} s, {self.num_runs} runs in"
            f" {self.run_seconds:.2f} s"
        )


def compare(
    settings: Settings, trace_file: TraceFile, place: Place | None = None, *, quiet: bool
) -> Comparison:
    """Play the trace with each policy in each pool, and in the pool that never evicts.

    The bounds, if ``settings`` ask for them, come before the outcome of the latter. If a cluster
    fails, return the runs that it finished. Raises :class:`~kvoxide.lab.replay.run.Incomplete` if
    it finished none.
    """
    started = time.perf_counter()
    workload = settings.workload(trace_file.trace)
    runs = plan_runs(workload, settings.policies, settings.pool_sizes, settings.hosts)
    failure = None
    try:
        outcomes = execute_watched(runs, place, quiet=quiet)
    except Incomplete as error:
        if not error.finished:
            raise
        outcomes, failure = error.finished, error
    num_missing = len(runs) - len(outcomes)
    if settings.has_bound:
        in_pools = [outcome for outcome in outcomes if not outcome.is_unlimited]
        outcomes[len(in_pools) :] = [*clairvoyant_outcomes(in_pools), *outcomes[len(in_pools) :]]
    seconds = time.perf_counter() - started
    return Comparison(settings, trace_file, outcomes, seconds, num_missing, failure)
