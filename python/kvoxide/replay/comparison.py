"""One trace under several policies and pool sizes: the runs, and everything that is known."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvoxide._core import Serving, Trace, __version__
from kvoxide.model import hit_tokens
from kvoxide.replay.bound import clairvoyant_outcomes
from kvoxide.replay.curves import HitShares, over_pool_size
from kvoxide.replay.execution import Incomplete, Place
from kvoxide.replay.groups import Groups
from kvoxide.replay.policies import NamedPolicy
from kvoxide.replay.progress import execute_watched
from kvoxide.replay.reader import TraceFile
from kvoxide.replay.records import (
    RETENTION_COLUMNS,
    TIMELINE_COLUMNS,
    group_record,
    outcome_record,
    retention_record,
    timeline_record,
)
from kvoxide.replay.runner import (
    Outcome,
    SharedTrace,
    Workload,
    check_run,
    plan_runs,
    playable_policies,
)
from kvoxide.replay.served_model import ServedModel
from kvoxide.replay.serving import (
    RECORDED,
    StepFit,
    serving_record,
    serving_settings_record,
)


@dataclass(frozen=True)
class Settings:
    """How a trace is played. Pool sizes are in blocks, ``concurrency`` in requests,
    ``max_batched_tokens`` in tokens per step; ``has_bound`` adds what could have been hit.
    ``served`` is the model that groups and pool sizes are of, if there is one; ``serving`` how time
    passes, if it does, and ``fit`` what its step times were found from. ``left_out`` says which
    policies are not played, and why. ``follows_schedule``, ``rules`` and ``prefix_caching``
    are those of :class:`Workload`."""

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
    def hit_shares(self) -> HitShares:
        """Hit share over the pool size."""
        return over_pool_size(self.outcomes, self.settings.pool_sizes)

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
    def title(self) -> str:
        """What was played and how, in two lines; before the second, what a model makes of it."""
        settings, trace = self.settings, self.trace_file.trace
        sizes = ", ".join(f"{size:,}" for size in settings.pool_sizes)
        has_times = settings.serving is not None and settings.serving.speed is not None
        arrivals = "; arrivals at the trace's times" if has_times else ""
        if settings.follows_schedule:
            arrivals = "; in the steps of the recorded server"
        served = f"{settings.served.title}\n" if settings.served else ""
        return (
            f"{self.trace_file.name}: {len(trace):,} requests, {trace.num_prompt_tokens:,} prompt"
            f" tokens, {trace.num_output_tokens:,} output tokens;"
            f" format {trace.format}\n"
            f"{served}groups {settings.groups.text}; {hits_text(settings.hit_tokens)}; pool of"
            f" {sizes} blocks; concurrency {settings.concurrency:,};"
            f" {settings.max_batched_tokens:,} tokens per step{arrivals}"
        )

    @property
    def duration(self) -> str:
        """How long reading and playing took."""
        return (
            f"read in {self.trace_file.read_seconds:.2f} s, {self.num_runs} runs in"
            f" {self.run_seconds:.2f} s"
        )

    def record(self) -> dict[str, Any]:
        """Everything but the single requests, as a JSON value."""
        return {
            "kvoxide": __version__,
            "settings": _settings_record(self.settings),
            "trace": trace_record(self.trace_file),
            "timing": {
                "read_seconds": self.trace_file.read_seconds,
                "run_seconds": self.run_seconds,
            },
            "missing_runs": self.num_missing,
            "timeline_columns": TIMELINE_COLUMNS,
            "retention_columns": RETENTION_COLUMNS,
            "results": [
                {
                    **outcome_record(outcome),
                    "timeline": timeline_record(outcome),
                    "retention": retention_record(outcome),
                    "serving": None if outcome.is_bound else serving_record(outcome.result.serving),
                }
                for outcome in self.outcomes
            ],
        }


def compare(
    settings: Settings, trace_file: TraceFile, place: Place | None = None, *, quiet: bool
) -> Comparison:
    """Play the trace with every policy in every pool, and in the pool that never evicts.

    What could have been hit, if that is wanted, stands before the latter. If a cluster fails,
    there is what was done before; raises :class:`~kvoxide.replay.execution.Incomplete` if that is
    nothing.
    """
    started = time.perf_counter()
    workload = settings.workload(trace_file.trace)
    runs = plan_runs(workload, settings.policies, settings.pool_sizes)
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


def hits_text(tokens: int | None) -> str:
    """Return a text on possible hits, whose lengths are multiples of ``tokens``."""
    return "prefix caching off" if tokens is None else f"hits of multiples of {tokens:,} tokens"


def _settings_record(settings: Settings) -> dict[str, Any]:
    return {
        "groups": settings.groups.text,
        "kv_cache_groups": [group_record(spec) for spec in settings.groups.specs],
        "prefix_caching": settings.prefix_caching,
        "hit_tokens": settings.hit_tokens,
        "blocks": list(settings.pool_sizes),
        "policies": [policy.name for policy in settings.policies],
        "left_out": list(settings.left_out),
        "concurrency": settings.concurrency,
        "max_batched_tokens": settings.max_batched_tokens,
        "bound": settings.has_bound,
        "model": settings.served.record() if settings.served else None,
        "serving": _serving_record(settings),
        "follows_schedule": settings.follows_schedule,
    }


def _serving_record(settings: Settings) -> dict[str, Any] | None:
    record = serving_settings_record(settings.serving, settings.fit)
    if record is not None and settings.follows_schedule:
        record |= {"arrivals": RECORDED, "speed": None}
    return record


def trace_record(file: TraceFile) -> dict[str, Any]:
    """What was read, as a JSON value."""
    return {
        "name": file.name,
        "format": file.trace.format,
        "notes": list(file.notes),
        "requests": len(file.trace),
        "prompt_tokens": file.trace.num_prompt_tokens,
        "output_tokens": file.trace.num_output_tokens,
        "tokens_per_id": file.trace.tokens_per_id,
        "requests_limit": file.limit,
        "skip_bad": file.skip_bad,
        "bad_lines": file.bad_lines,
        "first_bad_line": file.first_bad_line,
        "cut_off_files": file.cut_off_files,
        "returned_answers": file.returned_answers,
    }
