//! The look-up of one block after the other.

use crate::block::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};
use crate::pool::block_pool::BlockPool;

/// Looks a chain of keys up in one group. Blocks that were allocated together have ids a step
/// apart, so the next block is guessed and checked before the index is asked.
#[derive(Clone, Copy, Debug)]
pub struct PrefixCursor {
    group: GroupId,
    last: BlockId,
    step: u32,
    /// Whether the blocks lie anywhere, so that guessing them is in vain.
    is_scattered: bool,
    num_announced: usize,
    /// Of those announced, how many were not where they were guessed.
    num_wrong: usize,
}

impl PrefixCursor {
    /// A cursor for one group.
    pub fn new(group: GroupId) -> Self {
        Self::after(group, None)
    }

    /// A cursor for one group that goes on after a block.
    pub fn after(group: GroupId, last: Option<BlockId>) -> Self {
        Self {
            group,
            last: last.unwrap_or(NULL_BLOCK),
            step: 1,
            is_scattered: false,
            num_announced: 0,
            num_wrong: 0,
        }
    }

    /// Tells the next hashes. If most of the blocks announced before were not where they were
    /// guessed, waits for memory overlap that the next ones will cost.
    pub fn announce(&mut self, pool: &BlockPool, hashes: &[BlockHash]) {
        self.is_scattered = self.num_wrong > self.num_announced / 2;
        self.num_announced = hashes.len();
        self.num_wrong = 0;
        if self.is_scattered {
            pool.prefetch(self.group, hashes);
        }
    }

    /// The block that serves the next hash.
    pub fn find(&mut self, pool: &BlockPool, hash: BlockHash) -> Option<BlockId> {
        let key = CacheKey { hash, group: self.group };
        let guess = self.last.wrapping_add(self.step);
        if !self.is_scattered && pool.blocks.serves(guess, &key) {
            self.last = guess;
            return Some(guess);
        }
        let block = pool.find(&key)?;
        self.num_wrong += usize::from(block != guess);
        self.step = block.wrapping_sub(self.last);
        self.last = block;
        Some(block)
    }
}
