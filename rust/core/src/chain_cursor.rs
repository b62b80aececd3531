//! The look-up of one block after the other.

use crate::block::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};
use crate::pool::BlockPool;

/// Looks a chain of keys up in one group. Blocks that were allocated together have ids a step
/// apart, so the next block is guessed and checked before the index is asked.
#[derive(Clone, Copy, Debug)]
pub struct ChainCursor {
    group: GroupId,
    last: BlockId,
    step: u32,
}

impl ChainCursor {
    /// A cursor for one group.
    pub fn new(group: GroupId) -> Self {
        Self::after(group, None)
    }

    /// A cursor for one group that goes on after a block.
    pub fn after(group: GroupId, last: Option<BlockId>) -> Self {
        Self { group, last: last.unwrap_or(NULL_BLOCK), step: 1 }
    }

    /// The block that serves the next hash.
    pub fn find(&mut self, pool: &BlockPool, hash: BlockHash) -> Option<BlockId> {
        let key = CacheKey { hash, group: self.group };
        let guess = self.last.wrapping_add(self.step);
        let block = if pool.states.serves(guess, &key) { guess } else { pool.find(&key)? };
        self.step = block.wrapping_sub(self.last);
        self.last = block;
        Some(block)
    }
}
