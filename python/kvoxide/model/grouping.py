"""Layers that share a block table: vLLM's groups, all of whose blocks take the same memory.

The mechanism is vLLM's, described at ``v1/core/kv_cache_planning.py``: one group where all layers
need the same blocks; else groups of as many layers each as the rarest kind of layer has, with
blocks of more tokens where a token takes less; in packed layouts pages of several sizes side by
side.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil
from typing import Final

from kvoxide._core import ConfigError
from kvoxide.model.layers import LayerCache, Layers

# Padding of the smaller kinds is taken where the most frequent kind has fewer layers than this
# many times the rarest.
_MOST_PADDED: Final = 1.5


@dataclass(frozen=True)
class LayerGroup:
    """Caches with a block table in common, and the model's layers, from 0, that they are of."""

    layers: tuple[LayerCache, ...]
    indices: tuple[int, ...]

    @property
    def spec(self) -> LayerCache:
        """What stands for all of them: the first."""
        return self.layers[0]

    def block_bytes_within(self, indices: range) -> int:
        """Return the bytes of a block, of those of the model's layers."""
        numbered = zip(self.indices, self.layers, strict=True)
        return sum(layer.page for index, layer in numbered if index in indices)

    def blocks_of_request(self, model_len: int, in_flight: int) -> int:
        """As :meth:`~kvoxide.model.layers.LayerCache.blocks_of_request`, of the layer with most."""
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
    """What layers have in common that need blocks at the same time, whatever the size of those."""
    if layer.is_full:
        return ("full", layer.tokens)
    if layer.is_state:
        exports = layer.num_prefill_checkpoint_blocks, layer.prefill_checkpoint_alignment
        return (layer.kind, layer.tokens, layer.page, *exports)
    return (layer.kind, layer.tokens, layer.window)


def _with_equal_pages(layers: Bucket) -> Bucket:
    """Return blocks of more tokens for layers whose pages are smaller; padding for the rest of
    them."""
    largest = max(layer.page for _, layer in layers)
    return [(index, _grown(layer, largest)) for index, layer in layers]


def _grown(layer: LayerCache, page: int) -> LayerCache:
    if layer.page == page:
        return layer
    if not layer.is_state and page % layer.page == 0:
        return layer.with_block_size(layer.tokens * (page // layer.page))
    if layer.kind in ("mla_attention", "sliding_window_mla"):
        raise ConfigError(
            f"blocks of {layer.page} bytes of {layer.kind} cannot be made as large as {page} bytes"
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
    """Return a bucket dealt out to so many, which then lie alike in every stage of a pipeline."""
    return [bucket[first::parts] for first in range(parts)]


def _packed(layers: Bucket) -> list[LayerGroup]:
    """Groups for blocks in which pages of several sizes lie side by side.

    Layers that repeat a pattern of page sizes are split into groups of equally many repeats, those
    that need a block less often into groups that fit the block of the others.
    """
    buckets: dict[tuple[object, ...], Bucket] = {}
    for index, layer in layers:
        buckets.setdefault(_need(layer), []).append((index, layer))
    patterns = [_Pattern(bucket) for bucket in buckets.values()]
    repeats = _repeats_per_group([pattern for pattern in patterns if pattern.is_balanced])
    widest = max(pattern.widest(pattern.fewest_groups(repeats)) for pattern in patterns)
    return [_group(part) for pattern in patterns for part in pattern.split(repeats, widest)]


class _Pattern:
    """Layers of one need, by the size of their pages."""

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
        """Return the groups that so many repeats in each make."""
        return ceil(self.repeats / repeats) if self.is_balanced and repeats else 1

    def fewest_groups(self, repeats: int | None) -> int:
        """Return the groups at which a block is as small as it can be."""
        return len(self._bucket) if self._is_small(repeats) else self.num_groups(repeats)

    def widest(self, groups: int) -> int:
        """Return the bytes of a block of the largest of so many groups."""
        return sum(ceil(len(part) / groups) * page for page, part in self._by_page.items())

    def split(self, repeats: int | None, widest: int) -> list[Bucket]:
        """Its layers in groups whose blocks have at most ``widest`` bytes."""
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
        """Return whether its groups may be made smaller until they fit: states always are, windows
        where nothing else says how."""
        layer = self._bucket[0][1]
        is_window = layer.kind in ("sliding_window", "sliding_window_mla")
        return layer.is_state or (repeats is None and is_window)


def _repeats_per_group(patterns: Sequence[_Pattern]) -> int | None:
    """Return how many repeats of its pattern a group has: as wastes least, more at equal waste. At
    least those of the mixed patterns, which stay whole. None where there is no mixed pattern."""
    least = max((pattern.repeats for pattern in patterns if pattern.is_mixed), default=0)
    if not least:
        return None
    repeats = [pattern.repeats for pattern in patterns]
    return min(
        range(least, max(repeats) + 1),
        key=lambda size: (sum(-each % size for each in repeats), -size),
    )
