//! Looks up one hash after another.

use super::PrefixIndex;
use crate::block::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};
use crate::pool::blocks::Blocks;

/// Looks up the hashes of a prefix in one group. The ids of blocks that were allocated together
/// mostly differ by the same step. So the cursor guesses the next block and checks it before it
/// reads the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefixCursor {
    group: GroupId,
    last: BlockId,
    step: u32,
    /// Whether the ids follow no step, so that guesses are useless.
    is_scattered: bool,
    num_announced: usize,
    /// The number of announced hashes for which the guess was wrong.
    num_wrong: usize,
}

impl PrefixCursor {
    /// Creates a cursor for one group.
    pub(crate) fn new(group: GroupId) -> Self {
        Self::after(group, None)
    }

    /// Creates a cursor for one group that continues after a block.
    pub(crate) fn after(group: GroupId, last: Option<BlockId>) -> Self {
        Self {
            group,
            last: last.unwrap_or(NULL_BLOCK),
            step: 1,
            is_scattered: false,
            num_announced: 0,
            num_wrong: 0,
        }
    }

    /// Announces the next hashes. If most guesses for the previous hashes were wrong, prefetches
    /// the blocks of these hashes.
    pub(crate) fn announce(&mut self, index: &PrefixIndex, blocks: &Blocks, hashes: &[BlockHash]) {
        self.is_scattered = self.num_wrong > self.num_announced / 2;
        self.num_announced = hashes.len();
        self.num_wrong = 0;
        if self.is_scattered {
            index.prefetch(blocks, self.group, hashes);
        }
    }

    /// Returns the block that serves the next hash.
    #[inline(always)]
    pub(crate) fn find(
        &mut self,
        index: &PrefixIndex,
        blocks: &Blocks,
        hash: BlockHash,
    ) -> Option<BlockId> {
        let key = CacheKey { hash, group: self.group };
        let guess = self.last.wrapping_add(self.step);
        if !self.is_scattered && blocks.serves(guess, &key) {
            self.last = guess;
            return Some(guess);
        }
        let block = index.find(blocks, &key)?;
        self.num_wrong += usize::from(block != guess);
        self.step = block.wrapping_sub(self.last);
        self.last = block;
        Some(block)
    }
}
