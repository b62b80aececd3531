"""Measures how far a candidate is from the targets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvoxide._core import SimulationResult
from kvoxide.lab.plan.candidate import Candidate, Cost
from kvoxide.lab.plan.target import Target
from kvoxide.lab.plan.uncertainty import EXACT, Uncertainty


@dataclass(frozen=True)
class Verdict:
    """A candidate, its result and the targets.

    ``same_as`` is the smaller candidate whose result this one shares, if it was not played itself.
    """

    candidate: Candidate
    result: SimulationResult
    targets: tuple[Target, ...]
    same_as: Candidate | None = None
    uncertainty: Uncertainty = EXACT

    @property
    def figures(self) -> list[float | None]:
        """The figures that the targets limit, in the order of the targets."""
        return [target.metric.of(self.result) for target in self.targets]

    @property
    def margins(self) -> list[float | None]:
        """The margin of each figure: how far it is on the right side of its limit, as a share of
        the limit and less the error of times. None if the error leaves that open."""
        pairs = zip(self.targets, self.figures, strict=True)
        return [self.uncertainty.margin(target, value) for target, value in pairs]

    @property
    def loaded_share(self) -> float | None:
        """Tokens that were loaded from CPU memory, per prompt token (0.0 to 1.0). None without CPU
        memory."""
        if self.result.host_memory is None:
            return None
        return self.result.loaded_tokens / max(1, self.result.prompt_tokens)

    @property
    def num_rejected(self) -> int:
        """Requests that can never fit the pool. No figure counts them."""
        return self.result.rejected_requests

    @property
    def is_met(self) -> bool:
        """Whether every target is met, for all requests."""
        return not self.num_rejected and all(self._each_is_met)

    @property
    def is_open(self) -> bool:
        """Whether the error of times leaves open if every target is met."""
        return not (self.is_met or self.num_rejected or False in self._each_is_met)

    @property
    def _each_is_met(self) -> list[bool | None]:
        pairs = zip(self.targets, self.figures, strict=True)
        return [self.uncertainty.is_met(target, value) for target, value in pairs]

    @property
    def worst_margin(self) -> float:
        """The margin of the target that is met least, or missed most."""
        return min((-1e9 if margin is None else margin) for margin in self.margins)

    @property
    def rank(self) -> tuple[int, int, Cost, float]:
        """The sort key, best first: candidates that meet all targets by cost, then candidates that
        may meet them by cost, then the others by their worst margin. Candidates that reject
        requests come last."""
        cost = self.candidate.cost
        if self.is_met:
            return (0, 0, cost, -self.worst_margin)
        if self.is_open:
            return (1, 0, cost, -self.worst_margin)
        return (2, self.num_rejected, (0, 0, 0), -self.worst_margin)


def ranked(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Sort verdicts, best first, and the cheapest first among equal ones."""
    return sorted(verdicts, key=lambda v: (v.rank, v.candidate.cost))


def shortfall(verdict: Verdict) -> str:
    """Return in words which targets a candidate misses, and by how much."""
    missed = [
        _missed(target, value)
        for target, value in zip(verdict.targets, verdict.figures, strict=True)
        if not target.is_met(value)
    ]
    if verdict.num_rejected:
        missed.append(f"{verdict.num_rejected:,} requests are too large for its pool")
    return "; ".join(missed)


def _missed(target: Target, value: float | None) -> str:
    margin = target.margin(value)
    if value is None or margin is None:
        return f"{target.name} was not measured"
    where = "above" if target.metric.less_is_better else "below"
    return f"{target.name} is {target.metric.show(value)}, {abs(margin):.1%} {where} its limit"


def cheapest(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts that meet all targets at the least cost, best first."""
    met = [verdict for verdict in ranked(verdicts) if verdict.is_met]
    return [verdict for verdict in met if verdict.candidate.cost == met[0].candidate.cost]
