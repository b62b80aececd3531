//! The blocks of a request.

use super::table::GroupBlocks;
use crate::block::BlockId;
use crate::pool::WithoutTail;

/// The blocks of a request in one group.
#[derive(Clone, Debug, Default)]
pub struct HeldBlocks {
    /// The block table.
    pub blocks: GroupBlocks,
    /// The number of leading blocks that are cached or will never be. `None` until the request has
    /// attached a hit or cached a block in the group.
    pub num_cached_blocks: Option<usize>,
    /// The end of the hit if new blocks are in it, which a load fills: blocks before it can be cached
    /// after others that are not. 0 without such blocks.
    pub hit_end: usize,
    /// The part of the prompt that vLLM's default policy could not hit. Adaptive retention
    /// estimates it in the group of full attention.
    pub without_tail: WithoutTail,
}

/// The blocks of a request in all groups.
#[derive(Clone, Debug)]
pub struct RequestBlocks {
    /// One entry per group.
    pub groups: Vec<HeldBlocks>,
    /// Adaptive retention's notes on the request's tails.
    pub tails: Option<RequestTails>,
}

/// Adaptive retention's notes on the tails of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestTails {
    /// Window tails and states that the request released and that are protected while it runs, with
    /// the first words of their hashes. Some can have been evicted since.
    pub protected: Vec<(BlockId, u64)>,
    /// The number of tokens in the prompt.
    pub num_prompt_tokens: usize,
    /// The number of tokens that were computed before the request was admitted.
    pub num_hit_tokens: usize,
}

impl RequestBlocks {
    /// Creates a request without blocks.
    pub fn new(num_groups: usize) -> Self {
        Self { groups: vec![HeldBlocks::default(); num_groups], tails: None }
    }

    /// Returns the non-null blocks of all groups. The last block of each table comes first.
    pub(crate) fn iter_owned_rev(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.groups.iter().flat_map(|group| group.blocks.iter_owned_rev())
    }

    /// Returns whether the request has attached a hit or cached a block in some group. After that
    /// it cannot attach another hit.
    pub(crate) fn is_running(&self) -> bool {
        self.groups.iter().any(|group| group.num_cached_blocks.is_some())
    }
}
