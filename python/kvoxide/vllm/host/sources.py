"""Which tier loaded tokens came from."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from vllm.v1.metrics.cache_hit_source import CacheHitSource

_Run: TypeAlias = tuple[int, int, CacheHitSource]


def tokens_by_source(
    ranges: Iterable[tuple[int, int, bytes]],
    start: int,
    end: int,
    source_of: Callable[[bytes], Any] | None,
) -> dict[CacheHitSource, int]:
    """Returns how many tokens from ``start`` to ``end`` came from which source, by the key of each
    range: ``source_of`` a key, in the order of the ranges, or the host's where it is None. Where
    ranges overlap, the tier farthest out counts."""
    unknown = CacheHitSource.EXTERNAL_UNSPECIFIED
    events: list[tuple[int, int, CacheHitSource]] = [(end, 0, unknown)]
    for first, last, source in _runs(ranges, start, end, source_of):
        events += (max(start, first), 1, source), (min(end, last), -1, source)
    found: dict[CacheHitSource, int] = {}
    active: Counter[CacheHitSource] = Counter()
    position = start
    for at, change, source in sorted(events):
        if at > position:
            covering = [tier for tier, count in active.items() if count > 0]
            tier = CacheHitSource.outermost(covering) if covering else unknown
            found[tier] = found.get(tier, 0) + at - position
        active[source] += change
        position = at
    return found


def _runs(
    ranges: Iterable[tuple[int, int, bytes]],
    start: int,
    end: int,
    source_of: Callable[[bytes], Any] | None,
) -> Iterator[_Run]:
    """Yields the ranges that count, those that follow each other in one tier as one."""
    first, last, tier = start, start, CacheHitSource.HOST
    source: Any = tier
    for low, high, key in ranges:
        if low >= end or high <= start or low >= high:
            continue
        if source_of is not None:
            source = CacheHitSource(source_of(key))
        if low == last and source is tier:
            last = high
            continue
        if first < last:
            yield first, last, tier
        first, last, tier = low, high, source
    if first < last:
        yield first, last, tier
