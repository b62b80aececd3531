//! Predicts a request's table after a step, from the blocks that it already has. So errors are
//! found before anything changes.

use std::ops::Range;

use super::table::TableRecord;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::BlockPool;
use crate::request::HeldBlocks;

/// A table with the changes of a step that attaches no hit.
#[derive(Debug)]
pub(super) struct PlannedTable<'a> {
    /// The current record of the table.
    pub record: TableRecord,
    /// The current table.
    pub held: &'a HeldBlocks,
    /// The number of blocks for drafts at the end of a table with slots.
    pub(crate) num_speculative: usize,
    /// The number of leading positions that the step releases first, including positions that it
    /// keeps.
    pub(crate) num_skipped: usize,
    /// The positions of blocks for drafts that move to the end.
    pub(crate) moved: Range<usize>,
}

impl PlannedTable<'_> {
    /// Checks that the step breaks nothing. The error says what it would break.
    pub(super) fn check(&self, pool: &BlockPool) -> Result<(), String> {
        let Self { record, held, num_speculative, .. } = self;
        record.check(held, *num_speculative)?;
        if record
            .resumed_state(held, *num_speculative)
            .is_some_and(|block| pool.blocks().ref_count(block) == 0)
        {
            return Err("the state from which the step continues was released".into());
        }
        if !self.keeps_shared_tail() {
            return Err("the block to copy was released".into());
        }
        match self.moved.clone().find(|&position| !self.is_own(position, pool)) {
            None => Ok(()),
            Some(position) => Err(format!(
                "the draft block at position {position} cannot move, because it is shared, cached \
                 or released"
            )),
        }
    }

    fn is_kept(&self, position: usize) -> bool {
        !self.record.is_skipped(position, self.num_skipped)
    }

    fn keeps_shared_tail(&self) -> bool {
        self.record.shared_tail.is_none_or(|tail| {
            self.held.blocks.get(tail.position) == Some(tail.block) && self.is_kept(tail.position)
        })
    }

    fn is_own(&self, position: usize, pool: &BlockPool) -> bool {
        let block = self.held.blocks.get(position);
        block.is_some_and(|block| pool.blocks().is_writable(block)) && self.is_kept(position)
    }

    /// Returns the block that is at a position both before and after the step; the null block if
    /// there is none.
    pub(super) fn block(&self, position: usize) -> BlockId {
        // Either the request writes to a copy, or the copy gets the keys. In both cases the block
        // has no keys afterwards.
        let is_copied = self.record.shared_tail.is_some_and(|tail| tail.position == position);
        match self.held.blocks.get(position) {
            Some(block)
                if self.is_kept(position) && !is_copied && !self.moved.contains(&position) =>
            {
                block
            }
            _ => NULL_BLOCK,
        }
    }
}
