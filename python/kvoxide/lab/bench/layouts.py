"""The models that are measured: their KV cache groups, and a pool that a long prompt fits in."""

from dataclasses import dataclass
from math import gcd, lcm
from typing import Final

from kvoxide._core import KVCacheGroupSpec
from kvoxide.lab.replay.input import parse_groups

MILLION: Final = 1_000_000
# Blocks of a request in a group of states: before the step, after it, and between them.
_STATES_HELD: Final = 3


@dataclass(frozen=True)
class Group:
    """One KV cache group. Sizes are in tokens. Full attention, states and buffers have no
    ``window``."""

    spec: KVCacheGroupSpec
    num_ranks: int = 1

    @property
    def kind(self) -> str:
        """The kind, one of :data:`kvoxide.GroupKind`."""
        return self.spec.kind

    @property
    def block_size(self) -> int:
        """Tokens of a block, counting all ranks that share it."""
        return self.spec.block_size * (1 if self.is_state else self.num_ranks)

    @property
    def window(self) -> int | None:
        """How many tokens a token attends to. None if it attends to all."""
        return self.spec.sliding_window

    @property
    def is_state(self) -> bool:
        """Whether a block holds a state of a whole prefix."""
        return self.kind == "mamba"

    def blocks_held(self, tokens: int, in_flight: int) -> int:
        """Return the result of :meth:`Layout.blocks_held` for this group."""
        if self.is_state:
            return _STATES_HELD
        if self.kind == "circular_buffer":
            return 1
        return -(-min(tokens, in_flight + (self.window or tokens)) // self.block_size) + 1


@dataclass(frozen=True)
class Layout:
    """KV cache groups with a name. ``blocks_per_million`` is the pool for prompts of a million
    tokens. The pool grows and shrinks with the prompts. ``dcp_world_size`` ranks share the
    blocks."""

    name: str
    groups_text: str
    blocks_per_million: int
    dcp_world_size: int = 1

    @property
    def description(self) -> str:
        """The groups in words, and the number of ranks if there are several."""
        ranks = f" on {self.dcp_world_size} ranks" if self.dcp_world_size > 1 else ""
        return self.groups_text + ranks

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups in their order."""
        specs = parse_groups(self.groups_text).specs
        return tuple(Group(spec, self.dcp_world_size) for spec in specs)

    @property
    def scheduler_block_size(self) -> int:
        """Tokens between two boundaries that every group has."""
        return lcm(*(group.block_size for group in self.groups))

    @property
    def hash_block_size(self) -> int:
        """Tokens per block hash."""
        return gcd(*(group.block_size for group in self.groups if group.spec.prefix_cacheable))

    def chunk(self, start: int, tokens: int, most: int) -> int:
        """Return the tokens of the prefill chunk that begins at ``start``, at most ``most``, of a
        prompt of ``tokens``. With states, the chunk ends at the end of a block, as in vLLM's
        scheduler."""
        size = next((group.block_size for group in self.groups if group.is_state), 0)
        end = min(start + most, tokens)
        if not size:
            return end - start
        if end < tokens and end // size * size > start:
            end = end // size * size
        stops = ((tokens - 1) // size * size, (start // size + 1) * size if start % size else 0)
        return min((stop for stop in stops if start < stop < end), default=end) - start

    def blocks_held(self, tokens: int, in_flight: int) -> int:
        """Return the most blocks that a request of ``tokens`` holds while ``in_flight`` of them are
        new."""
        return sum(group.blocks_held(tokens, in_flight) for group in self.groups)

    def blocks_cached(self, tokens: int) -> int:
        """Return about how many blocks such a request leaves in the cache. For a sliding window,
        these are the blocks that a hit at a common boundary would use. States are few."""
        boundaries = tokens // self.scheduler_block_size
        return sum(boundaries * self._cached_per_boundary(group) for group in self.groups)

    def _cached_per_boundary(self, group: Group) -> int:
        if group.is_state or not group.spec.prefix_cacheable:
            return 0
        all_of_them = self.scheduler_block_size // group.block_size
        if group.window is None:
            return all_of_them
        return min(all_of_them, -(-group.window // group.block_size))


LAYOUTS: Final = {
    layout.name: layout
    for layout in (
        Layout("full", "full:16", 65_000),
        Layout("gemma", "full:16,swa:16:1024*5", 90_000),
        Layout("dsv4", "full:256,swa:64:128,swa:4:8,swa:8:128", 60_000),
        Layout("qwen3-next", "mamba:528*3,full:528", 60_000),
        Layout("deepseek-v4.1", "mla:256,swa-mla:32:128:uncached,circular:8", 60_000),
        Layout("dcp", "full:16", 17_000, dcp_world_size=4),
    )
}
