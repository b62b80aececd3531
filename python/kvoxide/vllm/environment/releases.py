"""The vLLM releases that the adapter was written for, and what differs between them."""

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Release:
    """The behaviour of one vLLM release wherever the supported releases differ."""

    version: str
    drops_flagged_groups: bool
    """Groups flagged as draft groups drop the last block of a hit even without ``use_eagle``."""
    keeps_block_below_junction: bool
    """With EAGLE, the block below a shared-prefix junction is retained too."""
    pops_null_heads: bool
    """``pop_blocks_for_free`` returns the null blocks at the head of a table too."""
    counts_null_references: bool
    """Touching and freeing move the null block's reference count."""
    has_hash_lookahead: bool
    """Block hashes may cover ``num_hash_lookahead_tokens`` tokens after their block; what is
    cached then ends where the hashes end, and events carry ``lookahead_token_ids``."""
    limits_hit_length: bool
    """Look-ups take ``max_cache_hit_length``."""
    recaches_known_tail: bool
    """A Mamba state that is cached where its prompt ends is cached there once more, so that others
    wait for it a step longer."""
    older_rules: tuple[str, ...]
    """Rules of older releases that the engine follows, by its own names."""
    counts_common_prefixes: bool
    """``get_num_common_prefix_blocks`` counts blocks, for cascade attention."""
    has_host_tier: bool
    """kvoxide has a host tier and a connector for the release."""
    ranks_running_requests: bool
    """The host tier's LRU orders what running requests saw by position, and failed stores are
    reported."""
    has_sync_loads: bool
    """The offloading connector may load within a step, for which it locks its manager, and notes
    the blocks of allocations without a load too."""

    @property
    def manager_rules(self) -> dict[str, Any]:
        """Return the rules of a manager in which releases differ, by the names of a recording."""
        return {
            "drops_flagged_groups": self.drops_flagged_groups,
            "recaches_known_tail": self.recaches_known_tail,
            "older_rules": list(self.older_rules),
            "keep_tail_below_boundary": self.keeps_block_below_junction,
        }


RELEASES: Final = {
    release.version: release
    for release in (
        Release(
            version="0.33.0",
            drops_flagged_groups=False,
            keeps_block_below_junction=True,
            pops_null_heads=False,
            counts_null_references=False,
            has_hash_lookahead=True,
            limits_hit_length=True,
            recaches_known_tail=False,
            older_rules=(),
            counts_common_prefixes=False,
            has_host_tier=True,
            ranks_running_requests=True,
            has_sync_loads=True,
        ),
        Release(
            version="0.32.0",
            drops_flagged_groups=True,
            keeps_block_below_junction=False,
            pops_null_heads=True,
            counts_null_references=True,
            has_hash_lookahead=False,
            limits_hit_length=False,
            recaches_known_tail=True,
            older_rules=(),
            counts_common_prefixes=False,
            has_host_tier=True,
            ranks_running_requests=False,
            has_sync_loads=False,
        ),
        Release(
            version="0.31.0",
            drops_flagged_groups=True,
            keeps_block_below_junction=False,
            pops_null_heads=True,
            counts_null_references=True,
            has_hash_lookahead=False,
            limits_hit_length=False,
            recaches_known_tail=True,
            older_rules=(
                "caches_unreachable_ends",
                "places_checkpoints_by_hash",
                "caches_all_checkpoints",
                "renews_drafts_at_checkpoints",
                "caches_state_ends_inside_blocks",
                "bounds_proofs_by_hit",
            ),
            counts_common_prefixes=True,
            has_host_tier=False,
            ranks_running_requests=False,
            has_sync_loads=False,
        ),
    )
}


def installed_version() -> str | None:
    """The public part of the version of the vLLM that ``import vllm`` finds; None without vLLM.

    A local suffix such as ``+cpu`` says how vLLM was built, not what it does.
    """
    try:
        import vllm
    except ImportError:
        return None
    return str(getattr(vllm, "__version__", "without a version")).partition("+")[0]
