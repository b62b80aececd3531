"""Warns once an hour of the reason that cost the most cache hits, if a setting avoids it."""

from collections.abc import Mapping
from time import monotonic
from typing import Final

from kvoxide._core_vllm import VllmManager
from kvoxide.outcomes import Outcome, largest_avoidable
from kvoxide.vllm.environment import logger

HOUR: Final = 3600.0
MIN_SHARE: Final = 0.05
"""The smallest share of prompt tokens that is worth a warning."""


class LostHitsLog:
    """Compares two reports of an engine that observes outcomes."""

    def __init__(self, engine: VllmManager) -> None:
        """Begin the first period."""
        self._engine = engine
        self._since = monotonic()
        self._reported: Mapping[str, int] = {}

    def end_period(self, now: float) -> None:
        """Warn of the largest avoidable loss since the last call. A server that was idle has a long
        period."""
        try:
            report = None if self._engine.is_replaced else self._engine.outcome_report()
        except Exception:  # a failed engine refuses every call; its scheduler gets this error
            return
        if report is None:
            return
        counts, before = report.outcomes, self._reported
        minutes = (now - self._since) / 60
        self._reported, self._since = counts, now
        lost = {name: count - before.get(name, 0) for name, count in counts.items()}
        prompt_tokens = sum(lost.values())
        found = largest_avoidable(lost)
        if found is not None and found[1] >= MIN_SHARE * prompt_tokens:
            _warn(*found, prompt_tokens, minutes)


def _warn(outcome: Outcome, tokens: int, prompt_tokens: int, minutes: float) -> None:
    logger.warning(
        "kvoxide: in the last %.0f minutes, %s of the prompt tokens lost a cache hit for one "
        "avoidable reason, %s: %s. %s Record the traffic (KVOXIDE_RECORD) and run `kvoxide why` to "
        "see the requests.",
        minutes,
        f"{tokens / prompt_tokens:.1%}",
        outcome.name,
        outcome.meaning,
        outcome.advice,
    )
