"""The standstills that last at the moment, by reason: one warning for each, and a gauge."""

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from kvoxide.vllm.environment import counters, logger

Reason: TypeAlias = Literal[
    "blocks", "never_fits", "remote_load", "connector_later", "grammar", "streaming", "other"
]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
METRIC: Final = "kvoxide_standstill"

_NEXT_STEPS: Final[dict[Reason, str]] = {  # never_fits has a message of its own
    "blocks": "Abort a request that holds blocks, or add KV cache memory.",
    "remote_load": "Check the connector and the place that it loads from, or abort the requests.",
    "connector_later": "Check the connector and its store, or abort the requests.",
    "grammar": "Abort the requests, and check the schemas that their clients send.",
    "streaming": "End sessions that are idle, or raise --max-num-seqs.",
    "other": "Abort it, and report this line with the options of the server.",
}


@dataclass(frozen=True)
class Standstill:
    """A standstill that was found: its reason, the first request that waits, its length and what
    the log says about it."""

    reason: Reason
    request: Any
    seconds: float
    num_steps: int
    details: str


class Episodes:
    """The standstills that last."""

    def __init__(self) -> None:
        """Set the gauges of all reasons to 0."""
        self._since: dict[Reason, float] = {}
        for reason in REASONS:
            counters.set_gauge(METRIC, 0, reason=reason)

    @property
    def last(self) -> bool:
        """Whether a standstill lasts."""
        return bool(self._since)

    def begin(self, found: Standstill, now: float) -> None:
        """Log a standstill and set its gauge, unless it lasts already."""
        if found.reason in self._since:
            return
        self._mark(found.reason, now - found.seconds)
        logger.warning(
            "kvoxide: standstill for %.0f s (%d steps), reason %s: %s. %s",
            found.seconds,
            found.num_steps,
            found.reason,
            found.details,
            _NEXT_STEPS[found.reason],
        )

    def begin_never_fits(self, request: Any, needed: int, available: int, now: float) -> None:
        """Log a request that needs more blocks than the pool has, and set the gauge."""
        self._mark("never_fits", now)
        logger.warning(
            "kvoxide: request %s can never finish: its %d tokens need %d blocks at once, and "
            "the pool has %d. Requests after it may wait forever. Abort it, add KV cache "
            "memory, or lower --max-model-len.",
            request.request_id,
            request.num_tokens,
            needed,
            available,
        )

    def end(self, reason: Reason, now: float) -> None:
        """Log the end of a standstill and reset its gauge, if it lasts."""
        since = self._since.pop(reason, None)
        if since is not None:
            counters.set_gauge(METRIC, 0, reason=reason)
            logger.info(
                "kvoxide: standstill ended after %.0f s, reason %s.", max(now - since, 0), reason
            )

    def _mark(self, reason: Reason, since: float) -> None:
        self._since.setdefault(reason, since)
        counters.set_gauge(METRIC, 1, reason=reason)
