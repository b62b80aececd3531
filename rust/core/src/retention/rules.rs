//! The rules by which all groups of a manager cache blocks.

use super::older_rules::OlderRules;

/// The rules by which all groups of a manager cache blocks. Sizes are in tokens.
#[derive(Clone, Debug)]
pub(crate) struct CacheRules {
    /// Tokens per block hash.
    pub hash_block_size: usize,
    /// The ends of cached tails are at multiples of this many tokens.
    pub tail_alignment: usize,
    /// Replays of a prompt end at multiples of this many tokens.
    pub scheduler_block_size: usize,
    /// Whether hits can end inside blocks, at any multiple of the hash block size.
    pub has_partial_hits: bool,
    /// Whether states are cached one alignment before a boundary. Hits that drop a block end there.
    pub drops_checkpoint_block: bool,
    /// The number of tokens after a block that the block's hash covers, too.
    pub num_hash_lookahead_tokens: usize,
    /// Whether the state at a shared-prefix boundary inside a block is cached.
    pub keeps_boundary_state: bool,
    /// Whether the state at the end of a prompt is cached again if it is already cached, as in older
    /// releases of vLLM.
    pub recaches_known_tail: bool,
    /// The rules of an older release of vLLM.
    pub older: OlderRules,
    /// Whether blocks that can never serve a hit stay uncached.
    pub masks_unreachable: bool,
    /// Tokens between the boundaries whose tail is cached; `None` for every aligned boundary.
    pub retention_interval: Option<usize>,
    /// Whether hits in any group drop their last block.
    pub any_drops_eagle_block: bool,
    /// Whether the tail one block before a shared-prefix boundary is cached, too.
    pub keeps_tail_below_boundary: bool,
    /// Whether the model has several groups.
    pub is_hybrid: bool,
    /// The number of tokens at the end of a computed prefix that a multi-module MTP drafter can
    /// compute again.
    pub num_reprefillable_tokens: usize,
    /// Whether several groups cache the same hashes of a request.
    pub shares_hashes: bool,
}

impl CacheRules {
    /// Returns the number of full blocks in the first `num_tokens` tokens that have a hash, if the
    /// request has `num_hashes` hashes.
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
