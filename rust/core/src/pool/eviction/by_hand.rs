//! Blocks that other code moves out of the free queue and back, and references that other code
//! sets.
//!
//! A block that was taken out of its queue and has no reference is *loose*. The pool holds a
//! reference to it, so that every other call finds it in use. A queued block that got references
//! stays queued until it is taken out.

use super::Eviction;
use super::queue::QueueEnd;
use crate::block::{BlockId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::pool::blocks::Blocks;

/// The unfinished moves of blocks and changes of reference counts by other code.
#[derive(Debug, Default)]
pub struct ByHand {
    loose: hashbrown::HashSet<BlockId, foldhash::fast::FixedState>,
    counted: hashbrown::HashMap<BlockId, u32, foldhash::fast::FixedState>,
}

impl ByHand {
    /// Returns whether no block is being moved by other code.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.loose.is_empty() && self.counted.is_empty()
    }

    /// Returns whether a block was taken out of its queue and has no reference.
    pub fn is_loose(&self, block: BlockId) -> bool {
        self.loose.contains(&block)
    }

    /// Returns the number of references to a block, if it differs from the pool's count.
    pub(crate) fn count(&self, block: BlockId) -> Option<u32> {
        match self.counted.get(&block) {
            Some(&count) => Some(count),
            None => self.is_loose(block).then_some(0),
        }
    }

    /// Refuses blocks that are being moved by hand.
    pub fn check_has_none(&self, mut ids: impl Iterator<Item = BlockId>) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        match ids.find(|&block| self.count(block).is_some()) {
            None => Ok(()),
            Some(block) if self.is_loose(block) => Err(Error::Block(format!(
                "block {block} was removed from the free queue and has no reference. Add a \
                 reference or put it back first (invariant 2)"
            ))),
            Some(block) => Err(Error::Block(format!(
                "block {block} has references and is in the free queue; remove it from the queue \
                 first (invariant 2)"
            ))),
        }
    }

    /// Returns an error while a queued block has references.
    pub(crate) fn check_none_counted(&self) -> Result<()> {
        self.check_has_none(self.counted.keys().copied())
    }

    /// Sets only a reference count: the block stays in its queue, or out of it.
    pub(crate) fn set_ref_count(&mut self, blocks: &mut Blocks, block: BlockId, count: u32) {
        match (blocks.ref_count(block) == 0, count) {
            (true, 0) => _ = self.counted.remove(&block),
            (true, _) => _ = self.counted.insert(block, count),
            (false, 0) => {
                self.loose.insert(block);
                blocks.set_ref_count(block, 1);
            }
            (false, _) => {
                self.loose.remove(&block);
                blocks.set_ref_count(block, count);
            }
        }
    }

    /// Takes a free block out of its queue. The block keeps references that other code set. Without
    /// such references it is loose.
    pub(crate) fn take_out(
        &mut self,
        eviction: &mut Eviction,
        blocks: &mut Blocks,
        block: BlockId,
    ) {
        eviction.take_out(blocks, block);
        let counted = self.counted.remove(&block);
        if counted.is_none() {
            self.loose.insert(block);
        }
        blocks.set_ref_count(block, counted.unwrap_or(1));
    }

    /// Puts loose blocks at an end of the free queue, in their order. If a block is not loose or
    /// was given twice, nothing changes, and the error names that block.
    pub(crate) fn put_back(
        &mut self,
        eviction: &mut Eviction,
        blocks: &mut Blocks,
        ids: &[BlockId],
        end: QueueEnd,
    ) -> Result<()> {
        let mut given = std::collections::HashSet::with_capacity(ids.len());
        for &block in ids {
            let why_not = match block {
                NULL_BLOCK => "it is the null block".to_owned(),
                _ if blocks.ref_count(block) == 0 => "it is already in the queue".to_owned(),
                _ if !self.is_loose(block) => {
                    format!("it has {} references", blocks.ref_count(block))
                }
                _ if !given.insert(block) => "it was given twice".to_owned(),
                _ => continue,
            };
            return Err(Error::Block(format!(
                "block {block} cannot be put into the free queue: {why_not} (invariant 2)"
            )));
        }
        for &block in ids {
            self.loose.remove(&block);
            blocks.set_ref_count(block, 0);
        }
        eviction.queue_mut().enqueue_at(blocks, ids, end);
        Ok(())
    }
}
