"""What a request loads and stores: which keys, from where, and into which blocks."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, islice, repeat
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import RequestOffloadState
from vllm.utils.math_utils import cdiv
from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvoxide._core_vllm import (
    VllmBlockIds,
    VllmBlocks,
    VllmChunkKeys,
    VllmGroupKeys,
    VllmRequestKeys,
)
from kvoxide.vllm.offload.attributes import KeyPositions


class AllocatedBlocks:
    """The ids of blocks, which may be many. It iterates over those that jobs watch alone, for which
    vLLM looks through all."""

    def __init__(self, block_ids: Iterable[int]) -> None:
        """Take the first ids."""
        self.ids = VllmBlockIds()
        self._watched: list[int] = []
        self.update(block_ids)

    def note(self, block_ids: list[int]) -> None:
        """Add ids; the null block is none of them."""
        self.ids.update(block_ids)

    def note_table(self, blocks: Any) -> None:
        """Add the ids of all groups of a request."""
        if type(blocks) is VllmBlocks:
            self.ids.update_from(blocks)
            return
        for block_ids in blocks.get_block_ids():
            self.note(block_ids)

    def update(self, block_ids: Iterable[int]) -> None:
        """Add ids."""
        self.note(list(block_ids))

    def watch(self, block_ids: dict[int, set[int]]) -> None:
        """Find those among ``block_ids``."""
        self._watched = self.ids.among(block_ids)

    def __contains__(self, block_id: int) -> bool:
        """Whether a block was allocated."""
        return block_id in self.ids

    def __len__(self) -> int:
        """How many blocks were allocated."""
        return len(self.ids)

    def __iter__(self) -> Iterator[int]:
        """Iterate over those that jobs watch."""
        return iter(self._watched)


class GroupTable:
    """The blocks of a request in a group, of kvoxide's manager or of vLLM's."""

    def __init__(self, blocks: Any, group: int) -> None:
        """Take vLLM's blocks of all groups."""
        self._blocks, self._group = blocks, group
        self._is_native = type(blocks) is VllmBlocks

    def ids(self, start: int, end: int) -> NDArray[np.int32]:
        """The ids from ``start`` to before ``end``, where there are so many."""
        if self._is_native:
            found: NDArray[np.int32] = self._blocks.block_ids_of(self._group, start, end)
            return found
        blocks = self._blocks.blocks[self._group][start:end]
        return np.array([block.block_id for block in blocks], dtype=np.int32)

    def first_to_load(self, start: int, end: int, is_sync: bool) -> int:
        """The first block from ``start`` on that is there and is to be filled; else ``end``. Blocks
        of a load within the step have their hashes already."""
        if self._is_native:
            first: int = self._blocks.first_unhashed(self._group, start, end, is_sync)
            return first
        blocks = islice(self._blocks.blocks[self._group], start, end)
        is_it = (not block.is_null and (is_sync or block.block_hash is None) for block in blocks)
        return next(compress(range(start, end), is_it), end)


def extend_keys_faster(state: Any, in_rust: bool) -> None:
    """Make a request's state extend its keys, of which it has none yet, by new hashes alone; keep
    them in Rust if so."""
    if type(state) is not RequestOffloadState:
        return
    if in_rust:
        _keep_keys(state)
    state.__class__ = _StateInRust if in_rust else _RequestState


def _keep_keys(state: Any) -> None:
    groups = state.config.kv_group_configs
    keys = VllmRequestKeys(
        [(group.group_idx, group.hashes_per_chunk, group.tokens_per_chunk) for group in groups]
    )
    for group_state, group_keys in zip(state.group_states, keys.groups(), strict=True):
        group_state.offload_keys = group_keys
    state.req_context._offload_key_positions = KeyPositions(keys)


class _RequestState(RequestOffloadState):  # type: ignore[misc]
    """What the connector knows of a request. The step's new hashes alone cost time."""

    __slots__ = ()

    def update_offload_keys(self) -> None:
        hashes = self.req.block_hashes
        if type(hashes) is not list:
            super().update_offload_keys()
            return
        num_hashes = len(hashes)
        for config, state in zip(self.config.kv_group_configs, self.group_states, strict=False):
            keys, hashes_per_chunk = state.offload_keys, config.hashes_per_chunk
            end = (len(keys) + 1) * hashes_per_chunk
            if end > num_hashes:
                continue
            group = config.group_idx.to_bytes(4, "big")
            new = [block_hash + group for block_hash in hashes[end - 1 :: hashes_per_chunk]]
            size, num_known = config.tokens_per_chunk, len(keys) + 1
            ends = range(num_known * size, (num_known + len(new)) * size, size)
            self.req_context._offload_key_positions.update(zip(new, ends, strict=True))
            keys += new


class _StateInRust(RequestOffloadState):  # type: ignore[misc]
    """What the connector knows of a request whose keys are in Rust."""

    __slots__ = ()

    def update_offload_keys(self) -> None:
        hashes, attributes = self.req.block_hashes, getattr(self.req, "__dict__", None)
        for group_state in self.group_states[:1]:
            keys = group_state.offload_keys
            keys.extend(hashes if type(hashes) is list else list(hashes), attributes)


_Range = tuple[int, int, bytes]


@dataclass(frozen=True)
class GroupLoad:
    """What is loaded of a group: ``keys``, for the tokens of ``span``, into ``block_ids`` from the
    block ``first_block`` on. The group's next store begins behind ``num_chunks``."""

    config: Any
    keys: Sequence[bytes]
    span: tuple[int, int]
    block_ids: NDArray[np.int32]
    first_block: int
    num_chunks: int

    def ranges(self) -> Iterator[_Range]:
        """Yields each key with the tokens that it stands for."""
        start, end = self.span
        # A state stands for all tokens before it.
        if isinstance(self.config.kv_cache_spec, MambaSpec):
            return zip(repeat(start), repeat(end), self.keys, strict=False)
        size = self.config.tokens_per_chunk
        starts = range(start // size * size, end, size)
        ends = (min(at + size, end) for at in starts)
        return zip((max(at, start) for at in starts), ends, self.keys, strict=True)


class LoadedRanges(Sequence[_Range]):
    """The tokens that each key of a load stands for; ``spans`` are those of each group."""

    def __init__(self, loads: Sequence[GroupLoad]) -> None:
        """Take what is loaded of each group."""
        self._loads = [load for load in loads if len(load.keys)]
        self.spans = [(*load.span, b"") for load in self._loads]

    def __iter__(self) -> Iterator[_Range]:
        """Iterate over the first token, the one behind the last, and the key."""
        for load in self._loads:
            yield from load.ranges()

    def __len__(self) -> int:
        """How many keys are loaded."""
        return sum(len(load.keys) for load in self._loads)

    def __getitem__(self, at: Any) -> Any:
        """Some of the ranges."""
        return list(self)[at]

    def __eq__(self, other: object) -> bool:
        """Whether ``other`` has the same ranges."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def plan_load(
    config: Any,
    state: Any,
    blocks: Any,
    num_tokens: int,
    is_sync: bool,
) -> list[GroupLoad] | None:
    """Returns what a load of ``num_tokens`` behind the local hit covers, group by group; None for
    what vLLM's own method has to do or to refuse. Changes nothing."""
    if state.partial_tail_boundary is not None or state.transfer_jobs:
        return None
    loads = []
    for group, keys in zip(config.kv_group_configs, state.group_states, strict=True):
        planned = _Group(group, keys.offload_keys, config.blocks_per_chunk, is_sync).plan(
            GroupTable(blocks, group.group_idx),
            state.num_locally_computed_tokens,
            state.num_locally_computed_tokens + num_tokens,
        )
        if planned is None:
            return None
        loads.append(planned)
    return loads


@dataclass(frozen=True)
class _Group:
    config: Any
    keys: Sequence[bytes]
    blocks_per_chunk: int
    is_sync: bool

    def plan(self, table: GroupTable, num_local: int, num_cached: int) -> GroupLoad | None:
        size = self.config.tokens_per_block
        end = cdiv(num_cached, size)
        if num_local % size or not len(table.ids(end - 1, end)):
            return None
        first = table.first_to_load(cdiv(num_local, size), end, self.is_sync)
        num_chunks = cdiv(num_cached, self.config.tokens_per_chunk)
        if not self._is_within_window(end - first) or len(self.keys) < num_chunks:
            return None
        is_state = isinstance(self.config.kv_cache_spec, MambaSpec)
        start = first // self.blocks_per_chunk if first < end else num_chunks
        return GroupLoad(
            self.config,
            self.keys[start:num_chunks],
            (num_local if is_state else first * size, num_cached),
            table.ids(first, end),
            first,
            num_chunks,
        )

    def _is_within_window(self, num_blocks: int) -> bool:
        window = self.config.sliding_window_size_in_chunks
        return window is None or num_blocks <= window * self.blocks_per_chunk + 1


@dataclass(frozen=True)
class Offer:
    """A group's chunks from ``start`` to before ``end``, of one block each; ``wanted`` are the keys
    of those that are there and that a look-up can reach."""

    config: Any
    state: Any
    start: int
    end: int
    wanted: Sequence[bytes]


def blocks_of(offered: Sequence[Offer], accepted: Any) -> list[tuple[list[int], int]]:
    """Returns for each group the blocks of the accepted keys, and the index of the first of them,
    else 0."""
    if type(accepted) is VllmChunkKeys:
        blocks, firsts = accepted.blocks([offer.state.block_ids for offer in offered])
        return list(zip(blocks, firsts, strict=True))
    accepted = set(accepted)
    found = []
    for offer in offered:
        keys = offer.state.offload_keys[offer.start : offer.end]
        places = list(compress(range(offer.start, offer.end), map(accepted.__contains__, keys)))
        block_ids = offer.state.block_ids
        found.append(([block_ids[place] for place in places], places[0] if places else 0))
    return found


def offers(
    connector: Any, state: Any, num_tokens: int, num_prompt_tokens: int
) -> list[Offer] | None:
    """Returns what a request whose ``num_tokens`` can be stored offers in each group;
    ``num_prompt_tokens`` of them can be of its prompt. None for what vLLM's own method has to
    find."""
    boundaries = _boundaries(connector.config, state.req)
    has_ended = state.req.is_finished()
    found = []
    for config, group in zip(connector.config.kv_group_configs, state.group_states, strict=True):
        end = state.storable_chunks(config, group, num_tokens)
        prompt_end = num_prompt_tokens // config.tokens_per_chunk
        if has_ended and end != prompt_end and config.sliding_window_size_in_chunks is not None:
            # The last tail of a window may be another one than before.
            return None
        horizon = _horizon(connector.config, config, end, end if has_ended else prompt_end)
        wanted = _wanted(connector, config, group, end, horizon, boundaries)
        found.append(Offer(config, group, group.next_stored_chunk_idx, end, wanted))
    return found


def _boundaries(config: Any, req: Any) -> tuple[int, ...]:
    if config.retention_interval is None:
        return ()
    shared = (req.shared_prefix_boundary,) if req.shared_prefix_boundary else ()
    return (req.num_prompt_tokens - 1, *shared)


def _horizon(connector_config: Any, config: Any, end: int, last: int) -> int | None:
    """Returns the chunk at which the last tail ends, of which ``last`` is known; None where only
    fixed tails count."""
    if connector_config.retention_interval is not None or config.is_eagle_group:
        return None
    return last if end <= last else None


def _wanted(
    connector: Any,
    config: Any,
    group: Any,
    end: int,
    horizon: int | None,
    boundaries: tuple[int, ...],
) -> Sequence[bytes]:
    keys: Sequence[bytes] = group.offload_keys
    start = VllmBlockIds.first_in(group.block_ids, group.next_stored_chunk_idx, end)
    # States are handed over by vLLM's scheduler, not found in tables.
    if config.requires_cow_source or end <= start:
        return keys[:0]
    mask = connector._reachable_store_block_mask(
        group_config=config,
        start_chunk_idx=start,
        end_chunk_idx=end,
        final_segment_end_chunk_idx=horizon,
        reachable_boundaries=boundaries,
    )
    if type(keys) is VllmGroupKeys:
        return keys.chosen(start, end, group.block_ids, mask)
    keys, block_ids = keys[start:end], group.block_ids[start:end]
    if mask is None:
        return list(compress(keys, block_ids))
    is_wanted = (block and reached for block, reached in zip(block_ids, mask, strict=False))
    return list(compress(keys, is_wanted))


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
