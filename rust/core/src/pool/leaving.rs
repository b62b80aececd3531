//! The cached blocks that are evicted next.

use super::block_pool::BlockPool;
use crate::block::{BlockId, CacheKey};

/// A free cached block that is evicted soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeavingBlock {
    /// The block.
    pub block: BlockId,
    /// The key of its own hash.
    pub key: CacheKey,
    /// The number of tokens of the prefix that its hash covers.
    pub num_tokens: usize,
}

impl BlockPool {
    /// Returns the cached ones of the `n` free blocks that are allocated next, in that order. It is
    /// the order without second chances of tails. A block whose key another block serves is left
    /// out.
    pub fn leaving(&self, n: usize) -> impl Iterator<Item = LeavingBlock> + '_ {
        self.eviction.order(&self.blocks).take(n).filter_map(|block| {
            if self.blocks.is_duplicate(block) {
                return None;
            }
            let num_tokens = self.blocks.hash_num_tokens(block)?;
            Some(LeavingBlock { block, key: self.blocks.key(block)?, num_tokens })
        })
    }
}
