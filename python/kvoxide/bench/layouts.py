"""The models that are measured: their KV cache groups, and a pool that a long prompt fits in."""

from dataclasses import dataclass
from math import gcd, lcm
from typing import Final

from kvoxide.replay.groups import parse_groups

MILLION: Final = 1_000_000
FULL_KIND: Final = "full_attention"


@dataclass(frozen=True)
class Group:
    """One KV cache group; sizes in tokens. No ``window``: full attention."""

    block_size: int
    window: int | None


@dataclass(frozen=True)
class Layout:
    """KV cache groups under a name. ``blocks_per_million`` is the pool for prompts of a million
    tokens; it grows and shrinks with the prompts."""

    name: str
    groups_text: str
    blocks_per_million: int

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups in their order."""
        specs = parse_groups(self.groups_text).specs
        return tuple(Group(spec.block_size, spec.sliding_window) for spec in specs)

    @property
    def scheduler_block_size(self) -> int:
        """Tokens between two boundaries that every group has."""
        return lcm(*(group.block_size for group in self.groups))

    @property
    def hash_block_size(self) -> int:
        """Tokens per block hash."""
        return gcd(*(group.block_size for group in self.groups))

    def blocks_held(self, tokens: int, in_flight: int) -> int:
        """Most blocks that a request of ``tokens`` holds while ``in_flight`` of them are new."""
        return sum(
            -(-min(tokens, in_flight + (group.window or tokens)) // group.block_size) + 1
            for group in self.groups
        )

    def blocks_cached(self, tokens: int) -> int:
        """About how many blocks such a request leaves in the cache: of a sliding window, those
        that a hit at a common boundary would use."""
        boundaries = tokens // self.scheduler_block_size
        return sum(boundaries * self._cached_per_boundary(group) for group in self.groups)

    def _cached_per_boundary(self, group: Group) -> int:
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
    )
}
