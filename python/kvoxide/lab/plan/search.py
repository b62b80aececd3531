"""Plays candidates, the cheapest first, until no candidate that is left can matter."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from kvoxide._core import SimulationResult
from kvoxide.lab.plan.candidate import Candidate, Cost
from kvoxide.lab.plan.spare_capacity import has_spare_capacity, has_spare_host_memory
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


class Family:
    """Candidates that differ in one size alone.

    ``key`` returns everything else of a candidate. ``has_spare`` returns whether a played candidate
    had room to spare in that size, so that larger ones have the same result.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        key: Callable[[Candidate], Hashable],
        has_spare: Callable[[int], bool],
    ) -> None:
        """``candidates`` are in the order of their cost."""
        alike: dict[Hashable, list[int]] = {}
        for at, candidate in enumerate(candidates):
            alike.setdefault(key(candidate), []).append(at)
        # For each candidate, the smaller ones, smallest first.
        self._smaller = {at: ats[:place] for ats in alike.values() for place, at in enumerate(ats)}
        self._has_spare = has_spare
        self._with_spare: set[int] = set()

    def add(self, at: int) -> None:
        """Note that a candidate was played."""
        if self._has_spare(at):
            self._with_spare.add(at)

    def equal_to(self, at: int, sources: Mapping[int, int]) -> int | None:
        """Return the played candidate whose result a candidate has, because a smaller one had room
        to spare; None if none had. ``sources`` has this for the smaller ones."""
        found = (sources.get(other) for other in self._smaller[at])
        return next((source for source in found if source in self._with_spare), None)


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
        self._least_cost: Cost | None = None
        # For each candidate whose result is known, the played candidate that has it.
        self._sources: dict[int, int] = {}
        candidates = search.candidates
        self._families = (
            Family(candidates, lambda it: it.but_memory, self._has_spare_memory),
            Family(candidates, lambda it: it.but_host_memory, self._has_spare_host_memory),
        )

    def add(self, at: int, result: SimulationResult) -> None:
        """Add the result of a candidate."""
        candidate = self._search.candidates[at]
        self._played[at] = result
        for family in self._families:
            family.add(at)
        self._sources = dict(self._known())
        if self._judged(candidate, result).is_met:
            self._least_cost = min(candidate.cost, self._least_cost or candidate.cost)

    def matters(self, at: int) -> bool:
        """Return whether a candidate must be played to know the cheapest. Any thread may call
        this."""
        return at not in self._sources and self._is_of_interest(self._search.candidates[at])

    def found(self, failure: Incomplete | None) -> Found:
        """Return the verdicts so far. They do not depend on the order in which runs ended."""
        known = [self._verdict(at, source) for at, source in sorted(self._sources.items())]
        verdicts = [verdict for verdict in known if self._is_of_interest(verdict.candidate)]
        return Found(verdicts, sum(v.same_as is None for v in verdicts), failure)

    def __len__(self) -> int:
        """Return how many candidates were played."""
        return len(self._played)

    def _is_of_interest(self, candidate: Candidate) -> bool:
        """Return whether a candidate costs no more than the cheapest that is known to meet all
        targets."""
        least = None if self._search.plays_all else self._least_cost
        return least is None or candidate.cost <= least

    def _known(self) -> Iterator[tuple[int, int]]:
        """Yield each candidate whose result is known, and the played candidate that has it."""
        sources: dict[int, int] = {}
        # Smaller candidates come first, because they cost less.
        for at in range(len(self._search.candidates)):
            equal = (family.equal_to(at, sources) for family in self._families)
            source = next((other for other in equal if other is not None), None)
            if source is None and at in self._played:
                source = at
            if source is not None:
                sources[at] = source
        yield from sources.items()

    def _has_spare_memory(self, at: int) -> bool:
        candidate, workload = self._search.candidates[at], self._search.workload
        return has_spare_capacity(candidate, self._played[at], workload)

    def _has_spare_host_memory(self, at: int) -> bool:
        return has_spare_host_memory(self._search.candidates[at], self._played[at])

    def _verdict(self, at: int, source: int) -> Verdict:
        candidates = self._search.candidates
        same_as = None if source == at else candidates[source]
        return self._judged(candidates[at], self._played[source], same_as)

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
