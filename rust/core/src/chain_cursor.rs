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
    /// How much more often than not the last guesses were wrong, up to [`Self::MOST_WRONG`].
    wrong: u8,
}

impl ChainCursor {
    const MOST_WRONG: u8 = 8;

    /// A cursor for one group.
    pub fn new(group: GroupId) -> Self {
        Self::after(group, None)
    }

    /// A cursor for one group that goes on after a block.
    pub fn after(group: GroupId, last: Option<BlockId>) -> Self {
        Self { group, last: last.unwrap_or(NULL_BLOCK), step: 1, wrong: 0 }
    }

    /// Whether the blocks lie anywhere: guessing them is in vain.
    fn is_scattered(&self) -> bool {
        self.wrong >= Self::MOST_WRONG / 2
    }

    /// Tells the next hashes, so that waits for memory overlap where blocks cannot be guessed.
    pub fn announce(&self, pool: &BlockPool, hashes: &[BlockHash]) {
        if self.is_scattered() {
            pool.warm_up(self.group, hashes);
        }
    }

    /// The block that serves the next hash.
    pub fn find(&mut self, pool: &BlockPool, hash: BlockHash) -> Option<BlockId> {
        let key = CacheKey { hash, group: self.group };
        let guess = self.last.wrapping_add(self.step);
        if !self.is_scattered() && pool.states.serves(guess, &key) {
            self.wrong = self.wrong.saturating_sub(1);
            self.last = guess;
            return Some(guess);
        }
        let block = pool.find(&key)?;
        self.wrong = match block == guess {
            true => self.wrong.saturating_sub(1),
            false => Self::MOST_WRONG.min(self.wrong + 1),
        };
        self.step = block.wrapping_sub(self.last);
        self.last = block;
        Some(block)
    }
}
