//! All free blocks in one order: the free queue, the pinned tier, then the lists of the adaptive
//! order. A step in either direction takes constant time.

use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::block_pool::BlockPool;

impl BlockPool {
    /// Whether a block waits to be recycled.
    pub fn is_queued(&self, block: BlockId) -> bool {
        block != NULL_BLOCK && self.blocks.ref_count(block) == 0
    }

    /// The first free block.
    pub fn first_queued(&self) -> Option<BlockId> {
        self.blocks.block_from(NULL_BLOCK)
    }

    /// The last free block.
    pub fn last_queued(&self) -> Option<BlockId> {
        self.blocks.block_up_to(None)
    }

    /// The free block behind another.
    pub fn queued_after(&self, block: BlockId) -> Option<BlockId> {
        self.blocks.block_after(block)
    }

    /// The free block before another.
    pub fn queued_before(&self, block: BlockId) -> Option<BlockId> {
        self.blocks.block_before(block)
    }

    /// The free blocks from one on.
    pub fn queued_from(&self, first: Option<BlockId>) -> impl Iterator<Item = BlockId> + '_ {
        std::iter::successors(first, |&block| self.queued_after(block))
    }
}
