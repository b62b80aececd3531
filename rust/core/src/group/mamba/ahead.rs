//! The row that a step will leave behind, as far as it is made of blocks that are there already:
//! what would be wrong then is found before anything changes.

use std::ops::Range;

use super::row::Row;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::BlockPool;
use crate::request::GroupState;

/// A row with the changes of a step that adopts nothing.
#[derive(Debug)]
pub struct RowAhead<'a> {
    /// The row as it is now.
    pub row: Row,
    /// What the request holds now.
    pub state: &'a GroupState,
    /// Leading positions that are given back first, as far as they are not kept.
    pub num_skipped: usize,
    /// Positions whose blocks, for drafts, move on.
    pub moved: Range<usize>,
}

impl RowAhead<'_> {
    /// Leading blocks that are cached or passed over for good.
    pub fn num_cached_blocks(&self) -> usize {
        self.state.num_cached_blocks.unwrap_or(0)
    }

    /// Whether what stands at a position is there when the others are given back.
    fn is_kept(&self, position: usize) -> bool {
        !self.row.is_given_back(position, self.num_skipped)
    }

    /// Whether the shared block that the step copies, if there is one, is where it was.
    pub fn keeps_shared_tail(&self) -> bool {
        self.row.shared_tail.is_none_or(|tail| {
            self.state.blocks.get(tail.position) == Some(tail.block) && self.is_kept(tail.position)
        })
    }

    /// The first block for drafts that is to move and cannot, since it is not the row's alone.
    pub fn unmovable(&self, pool: &BlockPool) -> Option<usize> {
        let is_own = |position: usize| {
            let block = self.state.blocks.get(position);
            block.is_some_and(|block| pool.is_writable(block)) && self.is_kept(position)
        };
        self.moved.clone().find(|&position| !is_own(position))
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
