//! The rules by which all groups of a manager cache blocks.

/// The rules by which all groups of a manager cache blocks. Sizes are in tokens.
#[derive(Clone, Debug)]
pub(crate) struct CacheRules {
    /// Tokens per block hash.
    pub hash_block_size: usize,
    /// The ends of cached tails are multiples of this many tokens.
    pub tail_alignment: usize,
    /// Replays of a prompt end at multiples of this many tokens.
    pub scheduler_block_size: usize,
    /// Whether hits can end inside blocks, at any multiple of the hash block size.
    pub has_partial_hits: bool,
    /// Whether states are cached one alignment below a boundary, where hits that drop a block end.
    pub drops_checkpoint_block: bool,
    /// Tokens after a block that the block's hash covers.
    pub num_hash_lookahead_tokens: usize,
    /// Whether the state at a shared-prefix boundary inside a block is cached.
    pub keeps_boundary_state: bool,
    /// Whether a state at the end of its prompt is cached again if it is cached already (vLLM before
    /// 0.33.0).
    pub recaches_known_tail: bool,
    /// Whether blocks that can never serve a hit are left out.
    pub masks_unreachable: bool,
    /// Tokens between the boundaries whose tail is cached; `None` for every aligned one.
    pub retention_interval: Option<usize>,
    /// Whether the hits of any group drop their last block.
    pub any_drops_eagle_block: bool,
    /// Whether the tail one block below a shared-prefix boundary is cached too.
    pub keeps_tail_below_boundary: bool,
    /// Whether there are several groups.
    pub is_hybrid: bool,
    /// Tokens at the end of a computed prefix that a multi-module MTP drafter may compute again.
    pub num_reprefillable_tokens: usize,
    /// Whether several groups cache the same hashes of a request.
    pub shares_hashes: bool,
}

impl CacheRules {
    /// Returns the number of full blocks below `num_tokens` that have a hash, given the number of
    /// hashes.
    #[inline]
    pub(crate) fn num_full_blocks(
        &self,
        block_size: usize,
        num_hashes: usize,
        num_tokens: usize,
    ) -> usize {
        num_tokens.min(num_hashes * self.hash_block_size) / block_size
    }
}
