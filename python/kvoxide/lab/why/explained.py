"""Find the outcome of each prompt token of a recording."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from kvoxide._core import ConfigError, Serving
from kvoxide.lab.replay.input import (
    DEFAULT_POLICY,
    Deployment,
    Groups,
    NotRecordedError,
    TraceFile,
    parse_policy,
    read_deployment,
    read_trace,
)
from kvoxide.lab.replay.run import Run, SharedTrace, Workload, check_run, execute_watched
from kvoxide.lab.replay.serving import fit_to_recording
from kvoxide.lab.replay.setup import AS_RECORDED, RECORDED, TRACE, TimeOptions
from kvoxide.outcomes import HIT_ANSWER, HIT_HOST, OTHER_SALT_OR_ADAPTER, Outcome

if TYPE_CHECKING:
    from kvoxide.lab.replay.input import NamedPolicy

_MICROSECONDS: Final = 1e6


@dataclass(frozen=True)
class Explained:
    """The requests of a recording and the outcomes of their prompts.

    All arrays have one row per request, in the order of arrival. ``servers`` are indices of the
    recorded schedulers. ``numbers`` are the numbers that each of them gave its requests.
    ``arrivals`` are in seconds since the epoch. ``outcomes`` has the tokens of each outcome.
    ``is_recorded`` says which outcomes the server recorded; the others come from a replay.
    ``began`` is when the recording began, in seconds since the epoch. ``is_of_several`` says that
    several servers wrote it, so that numbers of requests are not unique.
    """

    name: str
    servers: NDArray[np.int64]
    numbers: NDArray[np.int64]
    arrivals: NDArray[np.float64]
    outcomes: NDArray[np.int64]
    is_recorded: NDArray[np.bool_]
    began: float
    is_of_several: bool
    unknown: tuple[Outcome, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.numbers)

    def only(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> "Explained":
        """Return the requests that a mask selects, or the requests with these indices, in their
        order."""
        rows = ("servers", "numbers", "arrivals", "outcomes", "is_recorded")
        return replace(self, **{name: getattr(self, name)[which] for name in rows})


def explain(
    name: str, *, groups: Groups | None, skip_bad: bool, always_replay: bool, quiet: bool
) -> Explained:
    """Read a recording. Requests without recorded outcomes, or all if ``always_replay``, get theirs
    from a replay with the server's policy.

    Raises :class:`~kvoxide.KvoxideError` for a recording that cannot be read or replayed.
    """
    deployment = read_deployment(name)
    if deployment is None:
        raise NotRecordedError(name)
    file = read_trace(name, skip_bad=skip_bad)
    recorded = file.trace.recorded_outcomes
    is_recorded = (recorded[:, 0] >= 0) & (not always_replay)
    if is_recorded.all():
        lacks = tuple(f"{lack}; the explanation leaves it out" for lack in file.lacks)
        return _explained(file, deployment, recorded, is_recorded, (), lacks)
    played = _Replay(file, deployment, groups or deployment.groups)
    outcomes = np.where(is_recorded[:, None], recorded, played.outcomes(quiet=quiet))
    return _explained(file, deployment, outcomes, is_recorded, played.unknown, played.notes)


def _explained(
    file: TraceFile,
    deployment: Deployment,
    outcomes: NDArray[np.int64],
    is_recorded: NDArray[np.bool_],
    unknown: tuple[Outcome, ...],
    notes: Sequence[str],
) -> Explained:
    servers, numbers, microseconds = file.trace.recorded_requests.T
    has_number = numbers >= 0
    arrivals = deployment.started + np.maximum(microseconds, 0) / _MICROSECONDS
    # Format 1 has no numbers.
    numbers = np.where(has_number, numbers, np.arange(len(numbers)))
    was_played = outcomes[:, 0] >= 0
    left_out = int((~was_played).sum())
    if left_out:
        notes = (*notes, f"requests that do not fit the pool in the replay, left out: {left_out:,}")
    if file.bad_lines:
        notes = (*notes, f"bad lines: {file.bad_lines}; {file.first_bad_line}")
    explained = Explained(
        file.name,
        servers,
        numbers,
        arrivals,
        outcomes,
        is_recorded,
        deployment.started,
        len(np.unique(servers)) > 1,
        unknown,
        tuple(notes),
    )
    return explained.only(was_played)


class _Replay:
    """A replay of a recording in its own steps, with the policy of its server."""

    def __init__(self, file: TraceFile, deployment: Deployment, groups: Groups | None) -> None:
        if groups is None:
            raise ConfigError(
                f"{file.name}: the recording has no outcomes to show, and no KV cache groups to "
                "compute them with. Give --groups, as for kvoxide replay"
            )
        self._file = file
        self._deployment = deployment
        self._groups = groups
        self._is_adaptive = self._policy.name.startswith("adaptive")

    @property
    def _policy(self) -> "NamedPolicy":
        return self._deployment.policy or parse_policy(DEFAULT_POLICY)

    @property
    def unknown(self) -> tuple[Outcome, ...]:
        """The outcomes that no replay finds."""
        answers = () if self._is_adaptive else (HIT_ANSWER,)
        return (HIT_HOST, *answers, OTHER_SALT_OR_ADAPTER)

    @property
    def notes(self) -> list[str]:
        """Return what may differ from the server."""
        notes = list(self._file.notes)
        cut_off = self._file.cut_off_files
        if cut_off:
            notes.append(f"files that end too early: {cut_off}; all whole lines are explained")
        if self._deployment.policy is None:
            notes.append(
                f"the recording does not name the server's policy; {DEFAULT_POLICY} is replayed"
            )
        return notes

    def outcomes(self, *, quiet: bool) -> NDArray[np.int64]:
        """Play the recording, and return the outcomes of each request."""
        trace, deployment = self._file.trace, self._deployment
        workload = Workload(
            SharedTrace.of(trace),
            self._groups.specs,
            deployment.max_running_requests,
            deployment.max_batched_tokens,
            serving=self._serving(),
            follows_schedule=trace.has_schedule,
            rules=deployment.rules if self._groups == deployment.groups else None,
            prefix_caching=deployment.prefix_caching,
        )
        run = Run(workload, self._policy, deployment.num_blocks)
        check_run(run)
        workload.trace.add_user()
        (outcome,) = execute_watched([run], None, quiet=quiet)
        return outcome.result.outcomes_per_request

    def _serving(self) -> Serving | None:
        arrivals, fit = RECORDED, None
        if not self._file.trace.has_schedule:
            arrivals = TRACE
            try:
                fit = fit_to_recording(self._file.name)
            except ConfigError:
                fit = None  # the default times
        num_ranks = self._deployment.num_ranks
        router = AS_RECORDED if num_ranks > 1 else None
        return TimeOptions(arrivals, None, None, fit).serving(num_ranks, router)
