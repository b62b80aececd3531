"""A manager's configuration."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kvoxide.lab.verify.managers.printing import fields_that_matter

HashAlgorithm: TypeAlias = Literal["sha256_cbor", "xxhash_cbor"]
MambaMode: TypeAlias = Literal["none", "align"]
Kind: TypeAlias = Literal[
    "full_attention",
    "mla_attention",
    "sliding_window",
    "sliding_window_mla",
    "chunked_local_attention",
    "rswa",
    "circular_buffer",
    "mamba",
    "cross_attention",
    "hidden_states",
]

WINDOW_KINDS = ("sliding_window", "sliding_window_mla")
LARGEST_POOL = 1500
HUGE_POOLS = (10_000, 30_000)


@dataclass(frozen=True)
class Group:
    """A group. ``window`` is the size that the kind needs, in tokens. Only a Mamba group has the
    fields from ``mamba_mode`` on. Context parallelism does not change a replicated group's
    blocks."""

    kind: Kind
    block_size: int
    window: int | None = None
    extra_retained_tokens: int = 0
    is_eagle: bool = False
    prefix_cacheable: bool = True
    layout: int = 0
    mamba_mode: MambaMode = "none"
    num_speculative_blocks: int = 0
    num_prefill_checkpoint_blocks: int = 0
    prefill_checkpoint_alignment: int | None = None
    is_replicated: bool = False

    @property
    def has_bounded_replay(self) -> bool:
        """Whether the group stays out of the prefix cache although its kind takes part."""
        return self.kind in WINDOW_KINDS and not self.prefix_cacheable


@dataclass(frozen=True)
class Scenario:
    groups: tuple[Group, ...]
    num_blocks: int
    max_model_len: int
    scheduler_block_size: int
    hash_block_size: int
    seed: int = 0
    max_in_flight_tokens: int | None = None
    enable_caching: bool = True
    use_eagle: bool = False
    num_hash_lookahead_tokens: int = 0
    num_prefill_lookahead: int = 0
    log_stats: bool = False
    enable_events: bool = False
    needs_zeroing: bool = False
    watermark: float = 0.0
    retention_interval: int | None = None
    hash_algorithm: HashAlgorithm = "sha256_cbor"
    ready_made_hashes: bool = False
    collects_metrics: bool = False
    shared_prefix_checkpoint: bool = False
    dcp_world_size: int = 1
    pokes_at_pool: bool = False
    writes_by_hand: bool = False
    wraps_methods: bool = False

    @property
    def state_groups(self) -> "tuple[Group, ...]":
        return tuple(g for g in self.groups if g.kind == "mamba")

    @property
    def aligns_states(self) -> bool:
        """Whether the scheduler ends chunks where a state can be cached."""
        return any(g.mamba_mode == "align" for g in self.state_groups)

    def span_of(self, group: Group) -> int:
        """Return how many tokens a block of the group covers."""
        is_sharded = group.kind != "mamba" and not group.is_replicated
        return group.block_size * (self.dcp_world_size if is_sharded else 1)

    @property
    def has_cross_attention(self) -> bool:
        return any(g.kind == "cross_attention" for g in self.groups)

    @property
    def replay_window(self) -> int:
        """The tokens of a hit that bounded replay computes again."""
        return max((g.window or 0 for g in self.groups if g.has_bounded_replay), default=0)

    def to_json(self) -> dict[str, Any]:
        groups = [fields_that_matter(group) for group in self.groups]
        return {**fields_that_matter(self), "groups": groups}

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "Scenario":
        groups = tuple(Group(**group) for group in fields["groups"])
        return Scenario(**{**fields, "groups": groups})

    def without_group(self, index: int) -> "Scenario":
        groups = self.groups[:index] + self.groups[index + 1 :]
        return dataclasses.replace(self, groups=groups)
