"""Layers that share a block table: vLLM's groups. All blocks of all groups take the same memory.

The mechanism is vLLM's, described at ``v1/core/kv_cache_planning.py``. If all layers need the same
blocks, there is one group. Otherwise each group has as many layers as the rarest kind of layer has.
A kind whose tokens take less memory gets blocks of more tokens. In packed layouts, one block has
pages of several sizes.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil
from typing import Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.layers import LayerCache, Layers

# Smaller kinds are padded if the most frequent kind has fewer layers than this many times the
# rarest.
_MOST_PADDED: Final = 1.5


@dataclass(frozen=True)
class LayerGroup:
    """Caches with a common block table, and the indices of their layers in the model, from 0."""

    layers: tuple[LayerCache, ...]
    indices: tuple[int, ...]

    @property
    def spec(self) -> LayerCache:
        """The first cache, which represents all of them."""
        return self.layers[0]

    def block_bytes_within(self, indices: range) -> int:
        """Return the bytes of a block, counting the layers in ``indices``."""
        numbered = zip(self.indices, self.layers, strict=True)
        return sum(layer.page for index, layer in numbered if index in indices)

    def blocks_of_request(self, model_len: int, in_flight: int) -> int:
        """See :meth:`~kvoxide.lab.model.layers.LayerCache.blocks_of_request`. The layer with most
        blocks counts."""
        return max(layer.blocks_of_request(model_len, in_flight) for layer in set(self.layers))


Bucket = list[tuple[int, LayerCache]]


def group_layers(layers: Layers, *, is_packed: bool) -> list[LayerGroup]:
    """Return the groups, in the order of their first layers.

    Raises :class:`~kvoxide.ConfigError` if the layers' blocks cannot be made equal.
    """
    numbered = [(index, cache) for index, caches in enumerate(layers) for cache in caches]
    if len({_need(cache) for _, cache in numbered}) == 1:
        return [_group(numbered)]
    if is_packed and len({cache.page for _, cache in numbered}) > 1:
        return _packed(numbered)
    return _equal_pages(_with_equal_pages(numbered))


def _group(bucket: Iterable[tuple[int, LayerCache]]) -> LayerGroup:
    indices, layers = zip(*bucket, strict=True)
    return LayerGroup(layers, indices)


def _need(layer: LayerCache) -> tuple[object, ...]:
    """Return a key that is equal for layers that need blocks at the same time, whatever the size of
    the blocks."""
    if layer.is_full:
        return ("full", layer.tokens)
    if layer.is_state:
        exports = layer.num_prefill_checkpoint_blocks, layer.prefill_checkpoint_alignment
        return (layer.kind, layer.tokens, layer.page, *exports)
    return (layer.kind, layer.tokens, layer.window)


def _with_equal_pages(layers: Bucket) -> Bucket:
    """Return layers with equal pages. Layers with smaller pages get blocks of more tokens, and
    padding for the rest."""
    largest = max(layer.page for _, layer in layers)
    return [(index, _grown(layer, largest)) for index, layer in layers]


def _grown(layer: LayerCache, page: int) -> LayerCache:
    if layer.page == page:
        return layer
    if not layer.is_state and page % layer.page == 0:
        return layer.with_block_size(layer.tokens * (page // layer.page))
    if layer.kind in ("mla_attention", "sliding_window_mla"):
        raise ConfigError(
            f"a block of {layer.kind} has {layer.page} bytes and cannot be padded to {page} bytes"
        )
    return layer.padded_to(page)


def _equal_pages(layers: Bucket) -> list[LayerGroup]:
    buckets: dict[LayerCache, Bucket] = {}
    for index, layer in layers:
        buckets.setdefault(layer, []).append((index, layer))
    sizes = [len(bucket) for bucket in buckets.values()]
    size = max(sizes) if max(sizes) < min(sizes) * _MOST_PADDED else min(sizes)
    return [
        _group(part)
        for bucket in buckets.values()
        for part in _every(bucket, ceil(len(bucket) / size))
    ]


def _every(bucket: Bucket, parts: int) -> list[Bucket]:
    """Deal a bucket out to this many parts, so that each stage of a pipeline gets similar
    layers."""
    return [bucket[first::parts] for first in range(parts)]


def _packed(layers: Bucket) -> list[LayerGroup]:
    """Return groups for blocks with pages of several sizes.

    Layers that repeat a pattern of page sizes are split into groups with equally many repeats.
    Layers that need a block less often are split into groups that fit the block of the others.
    """
    buckets: dict[tuple[object, ...], Bucket] = {}
    for index, layer in layers:
        buckets.setdefault(_need(layer), []).append((index, layer))
    patterns = [_Pattern(bucket) for bucket in buckets.values()]
    repeats = _repeats_per_group([pattern for pattern in patterns if pattern.is_balanced])
    widest = max(pattern.widest(pattern.fewest_groups(repeats)) for pattern in patterns)
    return [_group(part) for pattern in patterns for part in pattern.split(repeats, widest)]


class _Pattern:
    """Layers with the same need, by the size of their pages."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._by_page: dict[int, Bucket] = {}
        for index, layer in bucket:
            self._by_page.setdefault(layer.page, []).append((index, layer))

    @property
    def repeats(self) -> int:
        """How many layers the most frequent page size has."""
        return max(map(len, self._by_page.values()))

    @property
    def is_balanced(self) -> bool:
        """Whether each repeat has one layer of each page size."""
        return len(Counter(map(len, self._by_page.values()))) == 1

    @property
    def is_mixed(self) -> bool:
        """Whether there are several page sizes."""
        return len(self._by_page) > 1

    def num_groups(self, repeats: int | None) -> int:
        """Return how many groups there are with this many repeats in each."""
        return ceil(self.repeats / repeats) if self.is_balanced and repeats else 1

    def fewest_groups(self, repeats: int | None) -> int:
        """Return the number of groups with which a block is as small as it can be."""
        return len(self._bucket) if self._is_small(repeats) else self.num_groups(repeats)

    def widest(self, groups: int) -> int:
        """Return the bytes of the largest block with this many groups."""
        return sum(ceil(len(part) / groups) * page for page, part in self._by_page.items())

    def split(self, repeats: int | None, widest: int) -> list[Bucket]:
        """Split the layers into groups whose blocks have at most ``widest`` bytes."""
        groups = self.num_groups(repeats)
        if self._is_small(repeats):
            fitting = max(widest // self._bucket[0][1].page, 1)
            groups = max(groups, ceil(len(self._bucket) / fitting))
        if groups == 1:
            return [self._bucket]
        rows = list(zip_longest(*self._by_page.values()))
        return [
            [layer for row in rows[first::groups] for layer in row if layer is not None]
            for first in range(groups)
        ]

    def _is_small(self, repeats: int | None) -> bool:
        """Return whether the groups may become smaller until they fit. Groups of states may. Groups
        of windows may if nothing else sets their size."""
        layer = self._bucket[0][1]
        is_window = layer.kind in ("sliding_window", "sliding_window_mla")
        return layer.is_state or (repeats is None and is_window)


def _repeats_per_group(patterns: Sequence[_Pattern]) -> int | None:
    """Return how many repeats of its pattern a group has: the number that wastes least, and the
    larger number at equal waste. It is at least the repeats of the mixed patterns, which stay
    whole. Return None if there is no mixed pattern."""
    least = max((pattern.repeats for pattern in patterns if pattern.is_mixed), default=0)
    if not least:
        return None
    repeats = [pattern.repeats for pattern in patterns]
    return min(
        range(least, max(repeats) + 1),
        key=lambda size: (sum(-each % size for each in repeats), -size),
    )
