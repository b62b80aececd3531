"""Plays candidates, the cheapest first, until no candidate that is left can matter."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from kvoxide._core import SimulationResult
from kvoxide.lab.plan.candidate import Candidate, Cost
from kvoxide.lab.plan.spare_capacity import has_spare_capacity
from kvoxide.lab.plan.target import Target
from kvoxide.lab.plan.uncertainty import EXACT, Uncertainty
from kvoxide.lab.plan.verdict import Verdict
from kvoxide.lab.replay.run import Executor, Incomplete, Run, Workload
from kvoxide.lab.replay.setup import TimeOptions


@dataclass(frozen=True)
class Search:
    """Candidates in the order of their cost, and the targets that they should meet.

    ``workload`` is the trace with the settings that all candidates share: everything but instances
    and router. With ``plays_all``, candidates that cost more than one that meets all targets are
    played too.
    """

    candidates: Sequence[Candidate]
    targets: tuple[Target, ...]
    workload: Workload
    time: TimeOptions
    plays_all: bool = False
    uncertainty: Uncertainty = EXACT

    def runs(self) -> list[Run]:
        """Return a run for each candidate."""
        return [self._run(candidate) for candidate in self.candidates]

    def _run(self, candidate: Candidate) -> Run:
        serving = self.time.timed(candidate.instances, candidate.routing)
        workload = replace(self.workload, serving=serving)
        workload.trace.add_user()
        return Run(workload, candidate.policy, candidate.blocks, candidate.host)


@dataclass(frozen=True)
class Found:
    """The verdicts in the order of cost, up to the cheapest that meet all targets. They needed
    ``num_played`` runs. ``failure`` says why some verdicts are missing."""

    verdicts: list[Verdict]
    num_played: int
    failure: Incomplete | None = None


class Results:
    """The results of the candidates that were played, and the verdicts that follow from them."""

    def __init__(self, search: Search) -> None:
        """Start without any result."""
        self._search = search
        self._played: dict[int, SimulationResult] = {}
        self._with_spare_capacity: set[int] = set()
        self._least_cost: Cost | None = None
        alike: dict[tuple[int, str, str, str], list[int]] = {}
        for at, candidate in enumerate(search.candidates):
            alike.setdefault(candidate.but_memory, []).append(at)
        # For each candidate, the candidates that differ in memory alone and have less, smallest
        # first.
        self._smaller = {at: ats[:place] for ats in alike.values() for place, at in enumerate(ats)}

    def add(self, at: int, result: SimulationResult) -> None:
        """Add the result of a candidate."""
        search = self._search
        if has_spare_capacity(search.candidates[at], result, search.workload):
            self._with_spare_capacity.add(at)
        candidate = search.candidates[at]
        if self._judged(candidate, result).is_met:
            self._least_cost = min(candidate.cost, self._least_cost or candidate.cost)
        self._played[at] = result

    def matters(self, at: int) -> bool:
        """Return whether a candidate must be played to know the cheapest. Any thread may call
        this."""
        if at in self._played or not self._with_spare_capacity.isdisjoint(self._smaller[at]):
            return False
        return self._is_of_interest(self._search.candidates[at])

    def found(self, failure: Incomplete | None) -> Found:
        """Return the verdicts so far. They do not depend on the order in which runs ended."""
        known = map(self._verdict, range(len(self._search.candidates)))
        verdicts = [v for v in known if v is not None and self._is_of_interest(v.candidate)]
        return Found(verdicts, sum(v.same_as is None for v in verdicts), failure)

    def __len__(self) -> int:
        """Return how many candidates were played."""
        return len(self._played)

    def _is_of_interest(self, candidate: Candidate) -> bool:
        """Return whether a candidate costs no more than the cheapest that is known to meet all
        targets."""
        least = None if self._search.plays_all else self._least_cost
        return least is None or candidate.cost <= least

    def _verdict(self, at: int) -> Verdict | None:
        """Return the verdict of a candidate. Return None if neither it was played nor a smaller
        candidate whose result it shares."""
        search, candidate = self._search, self._search.candidates[at]
        for other in self._smaller[at]:
            if other in self._with_spare_capacity:
                smaller = search.candidates[other]
                return self._judged(candidate, self._played[other], same_as=smaller)
        result = self._played.get(at)
        return None if result is None else self._judged(candidate, result)

    def _judged(
        self, candidate: Candidate, result: SimulationResult, same_as: Candidate | None = None
    ) -> Verdict:
        search = self._search
        return Verdict(candidate, result, search.targets, same_as, search.uncertainty)


def search_cheapest(
    search: Search, runs: Sequence[Run], executor: Executor, on_progress: Callable[[int], None]
) -> Found:
    """Play the runs of a search that matter. Raises :class:`Incomplete` if nothing was played."""
    results = Results(search)
    try:
        with closing(executor.outcomes(runs, on_progress, results.matters)) as outcomes:
            for at, outcome in outcomes:
                results.add(at, outcome.result)
                if not any(map(results.matters, range(len(runs)))):
                    break
    except Incomplete as error:
        if not len(results):
            raise
        return results.found(error)
    return results.found(None)
