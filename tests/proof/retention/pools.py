"""Pool sizes that are chosen by the bound.

The pool for a share is the smallest of a row of sizes in which the clairvoyant policy has that
share of the hits of a pool without evictions. Its hits are the bound under the schedule of vLLM's
default in the closed loop. Each size is 2^(1/4) times the size before it. If several shares have
the same pool, it counts once, for the largest share.

Pools are too small if they reject a request, or hold less than half of the blocks that are in use
at once while nothing is evicted. There, the scheduler decides more than the policy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kvoxide.lab.replay.input import DEFAULT_POLICY, Groups

from .playing import PlayedTraffic

STEPS_PER_DOUBLING: Final = 4
LEAST_ROOM: Final = 0.5  # of the most blocks that are in use while nothing is evicted
_SPARE_BLOCKS: Final = 16
_FULL_ATTENTION: Final = ("full_attention", "mla_attention")


@dataclass(frozen=True)
class Pool:
    """A pool size in blocks, and the share for which it was chosen."""

    share: int
    blocks: int


def chosen_pools(traffic: PlayedTraffic, groups: Groups, shares: Sequence[int]) -> list[Pool]:
    """Return the pools for shares in %, the smallest first."""
    whole = traffic.unlimited(groups)
    sizes = sizes_of(traffic, groups)

    def has(share: int) -> Callable[[int], bool]:
        def reaches(place: int) -> bool:
            played = traffic.run(groups, DEFAULT_POLICY, sizes[place])
            bound = played.bound_tokens or 0
            return not played.rejected_requests and 100 * bound >= share * whole.hit_tokens

        return reaches

    found: dict[int, int] = {}
    place = 0
    for share in sorted(shares):
        place = first_place(has(share), place, len(sizes) - 1)
        found[sizes[place]] = share
    return [Pool(share, blocks) for blocks, share in found.items()]


def sizes_of(traffic: PlayedTraffic, groups: Groups) -> list[int]:
    """Return the sizes that are considered, up to a pool that holds all that is ever cached."""
    block_size = max(group.block_size for group in groups.specs if group.kind in _FULL_ATTENTION)
    whole = traffic.unlimited(groups)
    most = whole.cached_blocks + whole.peak_used_blocks
    first = -(-traffic.longest // block_size) + _SPARE_BLOCKS
    sizes = [first]
    while sizes[-1] < most:
        sizes.append(round(first * 2 ** (len(sizes) / STEPS_PER_DOUBLING)))
    return [size for size in sizes if size >= LEAST_ROOM * whole.peak_used_blocks]


def first_place(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first place from ``low`` to ``high`` at which a condition holds. It holds at all
    later places, and is taken to hold at ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
