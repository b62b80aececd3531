//! A set of blocks of a pool.

use crate::block::BlockId;

/// A set of blocks of a pool, with one bit per block.
#[derive(Debug)]
pub(super) struct BlockSet(Vec<u64>);

impl BlockSet {
    /// Creates an empty set for a pool of `num_blocks` blocks.
    pub(super) fn new(num_blocks: usize) -> Self {
        Self(vec![0; num_blocks.div_ceil(64)])
    }

    pub(super) fn has(&self, block: BlockId) -> bool {
        self.0[block as usize / 64] >> (block % 64) & 1 != 0
    }

    pub(super) fn set(&mut self, block: BlockId, is_in: bool) {
        let word = &mut self.0[block as usize / 64];
        let bit = 1 << (block % 64);
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    /// Adds a block. Returns whether it was not in the set.
    pub(super) fn insert(&mut self, block: BlockId) -> bool {
        let is_new = !self.has(block);
        self.set(block, true);
        is_new
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }
}
