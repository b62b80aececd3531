"""Keeps a server running after its CPU offload cache failed."""

from functools import partial
from typing import Any, Final

from kvoxide import HostTier
from kvoxide._core import InternalError
from kvoxide.vllm.environment import count_fallback, logger

# The answers of a tier that failed: it holds no chunk and stores none.
_ANSWERS: Final = {
    "start_request": None,
    "lookup": "miss",
    "lookup_prefix": 0,
    "lookup_window": 0,
    "is_any_loading": False,
    "set_loading": None,
    "touch": None,
    "complete_load": None,
    "complete_read": None,
    "prepare_store": None,
    "complete_store": None,
    "finish_request": None,
    "reset": None,
    "take_events": (),
    "take_num_skipped": 0,
    "take_store_sizes": (),
}


class SafeTier:
    """Calls a :class:`kvoxide.HostTier` until its first fault, and answers like an empty tier from
    then on.

    The fault is logged. Only loads and reads, for which no chunks exist then, still raise it.
    """

    def __init__(self, tier: HostTier) -> None:
        """Take the tier."""
        self.unguarded = tier
        self.has_failed = False
        self.num_chunks = tier.num_chunks
        for name, answer in _ANSWERS.items():
            setattr(self, name, self.guarded(getattr(tier, name), answer))

    def guarded(self, method: Any, answer: Any) -> Any:
        """Return a method of another object over this tier. It returns ``answer`` after a fault."""
        return partial(self._call, method, answer)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the tier. After a fault, its numbers are an empty tier's."""
        try:
            return getattr(self.unguarded, name)
        except InternalError as error:
            self._fail(error)
            return self.num_chunks if name == "num_free_chunks" else 0

    def _call(self, method: Any, answer: Any, *args: Any) -> Any:
        if self.has_failed:
            return answer
        try:
            return method(*args)
        except InternalError as error:
            self._fail(error)
            return answer

    def _fail(self, error: InternalError) -> None:
        if not self.has_failed:
            self.has_failed = True
            count_fallback("error")
            logger.error(
                "kvoxide: the CPU offload cache failed and is disabled until restart. Cached "
                "prompts will be recomputed. Restart the server and report this error: %s",
                error,
            )


def unguarded(tier: Any) -> HostTier | None:
    """Return the tier itself."""
    return tier.unguarded if type(tier) is SafeTier else tier


def guarded(tier: Any, method: Any, answer: Any) -> Any:
    """Return a method of another object over ``tier``. It returns ``answer`` after a fault."""
    return tier.guarded(method, answer) if type(tier) is SafeTier else method
