"""Add up outcomes, by hour and by request."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kvoxide.lab.why.explained import Explained
from kvoxide.outcomes import OUTCOMES, Outcome, by_name, largest_avoidable

_HOUR: Final = 3_600
_AVOIDABLE: Final = [index for index, each in enumerate(OUTCOMES) if each.is_avoidable]
_HITS: Final = [index for index, each in enumerate(OUTCOMES) if each.is_hit]


@dataclass(frozen=True)
class Total:
    """The outcomes of several requests together."""

    num_requests: int
    counts: dict[str, int]

    @property
    def prompt_tokens(self) -> int:
        """All tokens of their prompts."""
        return sum(self.counts.values())

    @property
    def hit_tokens(self) -> int:
        """Tokens that were not computed."""
        return sum(self.counts[OUTCOMES[index].name] for index in _HITS)

    @property
    def avoidable_tokens(self) -> int:
        """Tokens that were computed for an avoidable reason."""
        return sum(self.counts[OUTCOMES[index].name] for index in _AVOIDABLE)

    @property
    def largest(self) -> tuple[Outcome, int] | None:
        """The largest avoidable reason and its tokens, if there is one."""
        return largest_avoidable(self.counts)

    def share(self, tokens: int) -> float:
        """Return a number of tokens as a share of all, 0.0 to 1.0."""
        return tokens / max(1, self.prompt_tokens)


def total(explained: Explained) -> Total:
    """Return the total of all requests."""
    return Total(len(explained), by_name(explained.outcomes.sum(axis=0).tolist()))


def hours(explained: Explained) -> list[tuple[float, Total]]:
    """Return the begin of each hour of the clock with requests, and its total."""
    starts = np.floor(explained.arrivals / _HOUR).astype(np.int64)
    found = np.unique(starts)
    return [(float(hour * _HOUR), total(explained.only(starts == hour))) for hour in found]


def most_lost(explained: Explained, count: int) -> Explained:
    """Return the requests with the most avoidable tokens, the largest first. Requests without any
    are left out."""
    lost = explained.outcomes[:, _AVOIDABLE].sum(axis=1)
    order = np.argsort(-lost, kind="stable")[:count]
    return explained.only(order[lost[order] > 0])


def each(explained: Explained) -> list[Total]:
    """Return the total of each request alone."""
    return [Total(1, by_name(row)) for row in explained.outcomes.tolist()]
