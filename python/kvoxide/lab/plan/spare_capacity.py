"""Decides when a larger pool or CPU memory cannot matter: a smaller one never ran short of room."""

from typing import Final

from kvoxide._core import SimulationResult
from kvoxide.lab.plan.candidate import Candidate
from kvoxide.lab.replay.run import Workload

# These routers look at requests alone. The others also look at the share of the pool in use.
_BLIND_ROUTERS: Final = ("round-robin", "session", "recorded", "prefix")
# Blocks per request and group, more than any call needs in addition to the tokens' own blocks.
_SPARE_BLOCKS: Final = 64


def has_spare_capacity(candidate: Candidate, result: SimulationResult, workload: Workload) -> bool:
    """Return whether the same run in any larger pool gives the same figures.

    This holds under these conditions:

    - No cached block was evicted, and no request was preempted or rejected.
    - The largest request would have found room for all of its tokens at any moment.
    - Neither policy nor router looks at the size of the pool.
    """
    policy = candidate.policy.policy
    if policy.retention != "standard" or policy.pin_min_drop_size is not None:
        return False
    if candidate.routing[0] not in _BLIND_ROUTERS:
        return False
    if result.evictions or result.preemptions or result.rejected_requests:
        return False
    longest = int(result.per_request[:, :2].sum(axis=1).max(initial=0))
    per_request = sum(longest // spec.block_size + _SPARE_BLOCKS for spec in workload.groups)
    usable = candidate.blocks - 1
    return result.peak_used_blocks + result.cached_blocks + per_request <= usable


def has_spare_host_memory(candidate: Candidate, result: SimulationResult) -> bool:
    """Return whether the same run with any larger CPU memory gives the same figures: it had room
    for every offer without an eviction, and its policy does not look at its size."""
    host, counts = candidate.host, result.host_memory
    if host is None or counts is None or host.memory.eviction_policy == "adaptive":
        return False
    return not (counts.evicted_chunks or counts.refused_offers)
