//! The cached blocks that are evicted next, and the keys that were evicted.

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

    /// Returns how many blocks were allocated since the pool was created.
    pub fn num_allocated(&self) -> u64 {
        self.num_allocated
    }

    /// Starts to record the keys of blocks that are allocated.
    pub(crate) fn record_evicted_keys(&mut self) {
        self.evicted_keys.get_or_insert_default();
    }

    /// Returns the keys that allocated blocks had since the last call, if they are recorded.
    pub(crate) fn take_evicted_keys(&mut self) -> Vec<CacheKey> {
        self.evicted_keys.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
