"""A host tier whose faults a server survives: what is missed is computed, what is wrong is not."""

from functools import partial
from typing import Any, Final

from kvoxide import HostTier
from kvoxide._core import InternalError
from kvoxide.vllm.environment import logger

# A tier that failed has nothing, takes nothing, and forgets what ends.
_ANSWERS: Final = {
    "start_request": None,
    "lookup": "miss",
    "lookup_prefix": 0,
    "lookup_window": 0,
    "is_any_loading": False,
    "set_loading": None,
    "touch": None,
    "complete_load": None,
    "prepare_store": None,
    "complete_store": None,
    "finish_request": None,
    "reset": None,
    "take_events": (),
    "take_num_skipped": 0,
    "take_store_sizes": (),
}


class SafeTier:
    """A :class:`kvoxide.HostTier` that is out of use from its first fault on.

    The fault is logged. A load alone, for which there are no chunks then, still raises it.
    """

    def __init__(self, tier: HostTier) -> None:
        """Take the tier."""
        self._tier = tier
        self._has_failed = False
        self.num_chunks = tier.num_chunks
        for name, answer in _ANSWERS.items():
            setattr(self, name, partial(self._call, getattr(tier, name), answer))

    def __getattr__(self, name: str) -> Any:
        """Return what the tier has; if it failed, its numbers are those of an empty one."""
        try:
            return getattr(self._tier, name)
        except InternalError as error:
            self._fail(error)
            return self.num_chunks if name == "num_free_chunks" else 0

    def _call(self, method: Any, answer: Any, *args: Any) -> Any:
        if self._has_failed:
            return answer
        try:
            return method(*args)
        except InternalError as error:
            self._fail(error)
            return answer

    def _fail(self, error: InternalError) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.error(
                "kvoxide's host tier is out of use until the server restarts; prompts are computed "
                "that it had: %s",
                error,
            )
