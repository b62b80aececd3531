"""Which keys and blocks a load of vLLM's offloading connector covers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vllm.utils.math_utils import cdiv
from vllm.v1.kv_cache_interface import MambaSpec

from kvoxide.vllm.host.blocks import GroupTable

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
