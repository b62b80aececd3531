"""Which keys and blocks a load of vLLM's offloading connector covers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice, repeat
from typing import Any

from vllm.utils.math_utils import cdiv
from vllm.v1.kv_cache_interface import MambaSpec


@dataclass(frozen=True)
class GroupLoad:
    """What is loaded of a group: ``keys`` with the tokens that they stand for, into ``block_ids``
    from the block ``first_block`` on. The group's next store begins behind ``num_chunks``."""

    keys: Sequence[bytes]
    ranges: Sequence[tuple[int, int, bytes]]
    block_ids: Sequence[int]
    first_block: int
    num_chunks: int


def plan_load(
    config: Any, state: Any, blocks: Sequence[Any], ids: Sequence[list[int]], num_tokens: int
) -> list[GroupLoad] | None:
    """Returns what a load of ``num_tokens`` behind the local hit covers, group by group; None for
    what vLLM's own method has to do or to refuse. Changes nothing."""
    if state.partial_tail_boundary is not None or state.transfer_jobs:
        return None
    loads = []
    for group, keys in zip(config.kv_group_configs, state.group_states, strict=True):
        planned = _Group(group, keys.offload_keys, config.blocks_per_chunk).plan(
            blocks[group.group_idx],
            ids[group.group_idx],
            state.num_locally_computed_tokens,
            state.num_locally_computed_tokens + num_tokens,
        )
        if planned is None:
            return None
        loads.append(planned)
    return loads


def flat(parts: Iterator[Sequence[Any]]) -> list[Any]:
    """Returns the parts as one list."""
    return list(chain.from_iterable(parts))


@dataclass(frozen=True)
class _Group:
    config: Any
    keys: list[bytes]
    blocks_per_chunk: int

    def plan(
        self, blocks: Sequence[Any], ids: list[int], num_local: int, num_cached: int
    ) -> GroupLoad | None:
        size = self.config.tokens_per_block
        end = cdiv(num_cached, size)
        if num_local % size or len(ids) < end:
            return None
        first = _first_to_load(blocks, ids, cdiv(num_local, size), end)
        num_chunks = cdiv(num_cached, self.config.tokens_per_chunk)
        if not self._is_within_window(end - first) or len(self.keys) < num_chunks:
            return None
        keys, ranges = (
            self._keys(first, num_chunks, num_local, num_cached) if first < end else ([], [])
        )
        return GroupLoad(keys, ranges, ids[first:end], first, num_chunks)

    def _is_within_window(self, num_blocks: int) -> bool:
        window = self.config.sliding_window_size_in_chunks
        return window is None or num_blocks <= window * self.blocks_per_chunk + 1

    def _keys(
        self, first: int, num_chunks: int, num_local: int, num_cached: int
    ) -> tuple[list[bytes], list[tuple[int, int, bytes]]]:
        start, size = first // self.blocks_per_chunk, self.config.tokens_per_chunk
        keys = self.keys[start:num_chunks]
        if isinstance(self.config.kv_cache_spec, MambaSpec):
            return keys, list(zip(repeat(num_local), repeat(num_cached), keys, strict=False))
        starts = range(start * size, num_chunks * size, size)
        ends = range((start + 1) * size, (num_chunks + 1) * size, size)
        ranges = list(zip(starts, ends, keys, strict=True))
        ranges[0] = (first * self.config.tokens_per_block, *ranges[0][1:])
        ranges[-1] = (ranges[-1][0], num_cached, keys[-1])
        return keys, ranges


def _first_to_load(blocks: Sequence[Any], ids: list[int], start: int, end: int) -> int:
    """Returns the first block from ``start`` on that is there and holds nothing; else ``end``."""
    for at in compress(range(start, end), islice(ids, start, end)):
        if blocks[at].block_hash is None:
            return at
    return end
