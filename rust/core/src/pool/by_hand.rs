//! The free blocks of a pool one after the other, and what other code changes of them.

use crate::block::{BlockId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::pool::block_pool::BlockPool;
use crate::pool::blocks::MAX_REFERENCES;
use crate::pool::eviction::queue::QueueEnd;

impl BlockPool {
    /// Whether a block is free.
    pub fn is_queued(&self, block: BlockId) -> bool {
        block != NULL_BLOCK && self.is_free(block)
    }

    /// The first free block: of the free queue, else of the pinned tier, else of any other list.
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

    /// Whether a block was taken out of its queue by hand, and has no reference.
    pub fn is_loose(&self, block: BlockId) -> bool {
        self.by_hand.is_loose(block)
    }

    /// Whether any block is being moved by hand.
    #[inline]
    pub fn has_by_hand(&self) -> bool {
        !self.by_hand.is_empty()
    }

    /// Refuses blocks that are being moved by hand.
    pub fn check_none_by_hand(&self, blocks: impl Iterator<Item = BlockId>) -> Result<()> {
        self.by_hand.check_has_none(blocks)
    }

    /// Refuses to go on while a queued block has references.
    pub(crate) fn check_none_counted(&self) -> Result<()> {
        self.by_hand.check_none_counted()
    }

    /// Sets a reference count and nothing else: the block stays in its queue or out of it.
    pub fn set_ref_count(&mut self, block: BlockId, count: u32) -> Result<()> {
        if count > MAX_REFERENCES {
            return Err(Error::Block(format!(
                "a block cannot have {count} references; at most {MAX_REFERENCES}"
            )));
        }
        match block {
            NULL_BLOCK => self.set_null_references(count),
            _ => self.by_hand.set_ref_count(&mut self.blocks, block, count),
        }
        Ok(())
    }

    /// Takes a block out of its queue. References that were counted by hand stay; without any the
    /// block is loose. `false` for a block that is not queued.
    pub fn unqueue(&mut self, block: BlockId) -> bool {
        let is_queued = self.is_queued(block);
        if is_queued {
            self.by_hand.take_out(&mut self.eviction, &mut self.blocks, block);
        }
        is_queued
    }

    /// Puts loose blocks at an end of the free queue, in their order. Refused, with nothing changed,
    /// where one of them is not loose or given twice.
    pub fn enqueue(&mut self, blocks: &[BlockId], end: QueueEnd) -> Result<()> {
        self.by_hand.put_back(&mut self.eviction, &mut self.blocks, blocks, end)
    }
}
