"""Finds where hits can end."""

from collections.abc import Sequence
from typing import Final

from kvoxide._core import KVCacheConfig, KVCacheGroupSpec, KVCacheManager

# The manager has no request, so the length does not matter.
_MAX_MODEL_LEN: Final = 1


def hit_tokens(groups: Sequence[KVCacheGroupSpec]) -> int:
    """Return the number of tokens that hits of these groups are multiples of.

    Raises :class:`~kvoxide.ConfigError` for groups that no manager can have.
    """
    smallest = KVCacheConfig(len(groups) + 1, list(groups))
    manager = KVCacheManager(smallest, _MAX_MODEL_LEN)
    is_inside = manager.enable_partial_hash_hits
    return manager.hash_block_size if is_inside else manager.scheduler_block_size
