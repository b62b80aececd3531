//! The rules by which all groups of a manager cache blocks.

use super::data::GroupData;
use crate::request::RequestView;

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
    pub(crate) drops_checkpoint_block: bool,
    /// Tokens after a block that the block's hash covers.
    pub num_hash_lookahead_tokens: usize,
    /// Whether the state at a shared-prefix boundary inside a block is cached.
    pub(crate) keeps_boundary_state: bool,
    /// Whether a state at the end of its prompt is cached again if it is cached already (vLLM before
    /// 0.33.0).
    pub recaches_known_tail: bool,
}

impl CacheRules {
    /// Returns the number of full blocks of a request below `num_tokens` that have a hash.
    #[inline]
    pub(crate) fn num_full_blocks(
        &self,
        data: &GroupData,
        request: &RequestView<'_>,
        num_tokens: usize,
    ) -> usize {
        let num_hashed = request.hashes.chain_len() * self.hash_block_size;
        num_tokens.min(num_hashed) / data.block_size
    }
}
