//! The free queue as others change it: blocks that they take out and put back, and references that
//! they set.

use super::by_hand::ByHand;
use crate::block::{BlockId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::pool::block_pool::BlockPool;
use crate::pool::blocks::MAX_REFERENCES;
use crate::pool::blocks::list::{BackRun, FrontRun};
use crate::pool::blocks::list_span::ListSpan;

/// Which end of the free queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEnd {
    /// Blocks that are recycled first.
    Front,
    /// Blocks that are recycled last.
    Back,
}

impl BlockPool {
    /// Whether a block was taken out of its queue by hand, and nobody counts a reference to it.
    pub fn is_loose(&self, block: BlockId) -> bool {
        self.by_hand.loose.contains(&block)
    }

    /// Whether any block is being moved by hand.
    #[inline]
    pub fn has_by_hand(&self) -> bool {
        !self.by_hand.is_empty()
    }

    /// Refuses blocks that are being moved by hand.
    pub fn check_none_by_hand(&self, mut blocks: impl Iterator<Item = BlockId>) -> Result<()> {
        if self.by_hand.is_empty() {
            return Ok(());
        }
        match blocks.find(|&block| self.by_hand.count(block).is_some()) {
            None => Ok(()),
            Some(block) if self.is_loose(block) => Err(Error::Block(format!(
                "block {block} was taken out of the free queue and has no reference: count one or \
                 put it back first (invariant 2)"
            ))),
            Some(block) => Err(Error::Block(format!(
                "block {block} has references and is in the free queue: take it out first \
                 (invariant 2)"
            ))),
        }
    }

    /// Refuses to go on while a queued block has references.
    pub fn check_none_counted(&self) -> Result<()> {
        self.check_none_by_hand(self.by_hand.counted.keys().copied())
    }

    /// Sets a reference count and nothing else: the block stays in its queue or out of it.
    pub fn set_ref_count(&mut self, block: BlockId, count: u32) -> Result<()> {
        if count > MAX_REFERENCES {
            return Err(Error::Block(format!(
                "a block cannot have {count} references; at most {MAX_REFERENCES}"
            )));
        }
        if block == NULL_BLOCK {
            self.set_null_references(count);
            return Ok(());
        }
        let ByHand { loose, counted } = &mut self.by_hand;
        match (self.blocks.ref_count(block) == 0, count) {
            (true, 0) => _ = counted.remove(&block),
            (true, _) => _ = counted.insert(block, count),
            (false, 0) => {
                loose.insert(block);
                self.blocks.set_ref_count(block, 1);
            }
            (false, _) => {
                loose.remove(&block);
                self.blocks.set_ref_count(block, count);
            }
        }
        Ok(())
    }

    /// Takes a block out of its queue. References that were counted by hand stay; without any the
    /// block is loose. `false` for a block that is not queued.
    pub fn unqueue(&mut self, block: BlockId) -> bool {
        if !self.is_queued(block) {
            return false;
        }
        let Self { adaptive, blocks: states, .. } = self;
        if !adaptive.as_mut().is_some_and(|adaptive| adaptive.remove(states, block)) {
            self.unlink(ListSpan::of(block));
        }
        let counted = self.by_hand.counted.remove(&block);
        if counted.is_none() {
            self.by_hand.loose.insert(block);
        }
        self.blocks.set_ref_count(block, counted.unwrap_or(1));
        true
    }

    /// Puts loose blocks at an end of the free queue, in their order. Refused, with nothing changed,
    /// where one of them is not loose or given twice.
    pub fn enqueue(&mut self, blocks: &[BlockId], end: QueueEnd) -> Result<()> {
        let mut given = std::collections::HashSet::with_capacity(blocks.len());
        for &block in blocks {
            let why_not = match block {
                NULL_BLOCK => "it is the null block".to_owned(),
                _ if self.is_queued(block) => "it is there already".to_owned(),
                _ if !self.is_loose(block) => {
                    format!("it has {} references", self.ref_count(block))
                }
                _ if !given.insert(block) => "it was given twice".to_owned(),
                _ => continue,
            };
            return Err(Error::Block(format!(
                "block {block} cannot be put into the free queue: {why_not} (invariant 2)"
            )));
        }
        let (mut front, mut back) = (self.free.front_run(&self.blocks), BackRun::default());
        for &block in blocks {
            self.free_loose(block, end, &mut front, &mut back);
        }
        self.free.close_runs(&mut self.blocks, front, back);
        Ok(())
    }

    fn free_loose(
        &mut self,
        block: BlockId,
        end: QueueEnd,
        front: &mut FrontRun,
        back: &mut BackRun,
    ) {
        self.by_hand.loose.remove(&block);
        self.blocks.set_ref_count(block, 0);
        self.blocks.set_pinned(block, false);
        match end {
            QueueEnd::Front => self.free.push_to_front_run(&mut self.blocks, front, block),
            QueueEnd::Back => self.free.push_to_back_run(&mut self.blocks, back, block),
        }
    }
}
