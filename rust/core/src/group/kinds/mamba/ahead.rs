//! The row that a step will leave behind, as far as it is made of blocks that are there already:
//! what would be wrong then is found before anything changes.

use std::ops::Range;

use super::row::Row;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::BlockPool;
use crate::request::GroupState;

/// A row with the changes of a step that attaches nothing.
#[derive(Debug)]
pub struct RowAhead<'a> {
    /// The row as it is now.
    pub row: Row,
    /// What the request holds now.
    pub state: &'a GroupState,
    /// Blocks for drafts that a row with slots ends with.
    pub num_speculative: usize,
    /// Leading positions that are given back first, as far as they are not kept.
    pub num_skipped: usize,
    /// Positions whose blocks, for drafts, move on.
    pub moved: Range<usize>,
}

impl RowAhead<'_> {
    /// What stands against the step, if anything does.
    pub fn check(&self, pool: &BlockPool) -> Result<(), String> {
        let Self { row, state, num_speculative, .. } = self;
        row.check(state, *num_speculative)?;
        if row.state_read(state, *num_speculative).is_some_and(|block| pool.is_free(block)) {
            return Err("the state that the step goes on from was given back".into());
        }
        if !self.keeps_shared_tail() {
            return Err("the block that is to be copied was given back".into());
        }
        match self.moved.clone().find(|&position| !self.is_own(position, pool)) {
            None => Ok(()),
            Some(position) => Err(format!(
                "the block for drafts at position {position} is shared, cached or given back, so \
                 that it cannot move"
            )),
        }
    }

    /// Leading blocks that are cached or passed over for good.
    pub fn num_cached_blocks(&self) -> usize {
        self.state.num_cached_blocks.unwrap_or(0)
    }

    fn is_kept(&self, position: usize) -> bool {
        !self.row.is_skipped(position, self.num_skipped)
    }

    fn keeps_shared_tail(&self) -> bool {
        self.row.shared_tail.is_none_or(|tail| {
            self.state.blocks.get(tail.position) == Some(tail.block) && self.is_kept(tail.position)
        })
    }

    fn is_own(&self, position: usize, pool: &BlockPool) -> bool {
        let block = self.state.blocks.get(position);
        block.is_some_and(|block| pool.is_writable(block)) && self.is_kept(position)
    }

    /// The block that stands at a position before the step and behind it; null where there is none.
    pub fn block(&self, position: usize) -> BlockId {
        // The request goes on in a copy, or the copy takes the keys: neither way are they there.
        let is_copied = self.row.shared_tail.is_some_and(|tail| tail.position == position);
        match self.state.blocks.get(position) {
            Some(block)
                if self.is_kept(position) && !is_copied && !self.moved.contains(&position) =>
            {
                block
            }
            _ => NULL_BLOCK,
        }
    }
}
