//! Adds many blocks to a list.

use super::Blocks;
use crate::block::{BlockId, NULL_BLOCK};

/// Both ends of a list to which blocks are added one after another. The block that is added first
/// at the front stays the first of the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenEnds {
    /// The last block that was added at the front, or the sentinel.
    pub(super) front: u32,
    /// The block that will be joined with `front`. `None` if it is unknown because the list was
    /// empty. Then a block at the front is joined with the back at once.
    pub(super) rest: Option<u32>,
    /// The last block at the back, or the sentinel.
    pub(crate) back: u32,
    /// The number of blocks that were added at both ends.
    pub(crate) num_added: usize,
}

impl OpenEnds {
    /// Creates the ends of a list before any block is added. `rest` is its first block, and `back`
    /// is its last block or the sentinel.
    pub(super) fn new(sentinel: u32, rest: Option<u32>, back: u32) -> Self {
        Self { front: sentinel, rest, back, num_added: 0 }
    }

    /// Creates the back of a list that ends with the block `last`.
    pub(crate) fn back_of(last: u32) -> Self {
        Self { front: NULL_BLOCK, rest: None, back: last, num_added: 0 }
    }

    #[inline]
    pub(crate) fn push_back(&mut self, blocks: &mut Blocks, block: BlockId) {
        if self.rest.is_none() && self.back == self.front {
            self.rest = Some(block);
        }
        blocks.join(self.back, block);
        self.back = block;
        self.num_added += 1;
    }

    #[inline]
    pub(crate) fn push_front(&mut self, blocks: &mut Blocks, block: BlockId) {
        if self.rest.is_none() {
            match self.back == self.front {
                true => self.back = block,
                false => blocks.join(block, blocks.next(self.front)),
            }
        }
        blocks.join(self.front, block);
        self.front = block;
        self.num_added += 1;
    }

    /// Returns whether blocks can be added at the front without a look at the back.
    pub(crate) fn is_front_apart(&self) -> bool {
        self.rest.is_some()
    }
}
