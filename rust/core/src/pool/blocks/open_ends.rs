//! Additions of many blocks to a list.

use super::Blocks;
use crate::block::{BlockId, NULL_BLOCK};

/// Both ends of a list to which blocks are added one after another. The first block that is added at
/// the front stays the first of the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenEnds {
    /// The last block that was added at the front, or the sentinel.
    pub(super) front: u32,
    /// The block with which `front` is to be joined. `None` if that is not known, since the list was
    /// empty: then a block at the front is joined with the back at once.
    pub(super) rest: Option<u32>,
    /// The last block at the back, or the sentinel.
    pub(crate) back: u32,
    /// How many were added at both ends.
    pub(crate) num_added: usize,
}

impl OpenEnds {
    /// The ends of a list before any block is added: `rest` is its first block, `back` its last or the
    /// sentinel.
    pub(super) fn new(sentinel: u32, rest: Option<u32>, back: u32) -> Self {
        Self { front: sentinel, rest, back, num_added: 0 }
    }

    /// The back of a list whose last block is this one.
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

    /// Whether blocks can be added at the front without a look at the back.
    pub(crate) fn is_front_apart(&self) -> bool {
        self.rest.is_some()
    }
}
