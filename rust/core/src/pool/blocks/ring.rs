//! Rings of blocks. Each ring is closed by a sentinel, an id that is not a block of the ring. The
//! sentinel of the free queue is the null block. Sentinels of other rings are ids after the last
//! block.

use super::Blocks;
use super::links::{join, unlink};
use super::list_span::ListSpan;
use crate::block::{BlockId, NULL_BLOCK};

impl Blocks {
    pub(super) fn next(&self, id: u32) -> u32 {
        self.links()[id as usize].next_of(id)
    }

    pub(super) fn prev(&self, id: u32) -> u32 {
        self.links()[id as usize].prev_of(id)
    }

    pub(super) fn join(&mut self, left: u32, right: u32) {
        join(&mut self.links, left, right);
    }

    /// Makes a ring without blocks from a sentinel.
    pub(crate) fn make_ring(&mut self, sentinel: u32) {
        self.join(sentinel, sentinel);
    }

    pub(crate) fn push_to_ring(&mut self, sentinel: u32, block: BlockId) {
        self.join(self.prev(sentinel), block);
        self.join(block, sentinel);
    }

    pub(crate) fn first_of_ring(&self, sentinel: u32) -> Option<BlockId> {
        Some(self.next(sentinel)).filter(|&first| first != sentinel)
    }

    /// Returns the last block of a ring, or its sentinel.
    pub(crate) fn last_of_ring(&self, sentinel: u32) -> u32 {
        self.prev(sentinel)
    }

    /// Adds a block after the last block of its ring so far. With the sentinel as `next`, closes
    /// the ring.
    pub(crate) fn append(&mut self, last: u32, next: u32) {
        self.join(last, next);
    }

    /// Removes blocks from their ring.
    pub(crate) fn unlink_span(&mut self, span: &ListSpan) {
        span.unlink(&mut self.links);
    }

    /// Removes a block from its ring.
    pub(crate) fn unlink(&mut self, block: BlockId) {
        unlink(&mut self.links, block);
    }

    /// Moves all blocks of a ring to the front of another ring.
    pub(crate) fn prepend_ring(&mut self, from: u32, to: u32) {
        let (first, last) = (self.next(from), self.prev(from));
        if first == from {
            return;
        }
        self.join(last, self.next(to));
        self.join(to, first);
        self.join(from, from);
    }

    /// Returns the blocks of a ring, in order.
    pub(crate) fn ring(&self, sentinel: u32) -> impl Iterator<Item = BlockId> + '_ {
        std::iter::successors(self.first_of_ring(sentinel), move |&block| {
            Some(self.next(block)).filter(|&next| next != sentinel)
        })
    }
}

/// Iterates over the free blocks: all rings one after another, in the order of their sentinels.
/// Blocks of the free queue come first, then blocks of the pinned tier.
impl Blocks {
    /// Returns the first free block.
    pub fn first_free(&self) -> Option<BlockId> {
        self.sentinels().find_map(|sentinel| self.first_of_ring(sentinel))
    }

    /// Returns the last free block.
    pub fn last_free(&self) -> Option<BlockId> {
        let mut last = self.sentinels().rev().map(|sentinel| self.prev(sentinel));
        last.find(|&id| self.is_block(id))
    }

    /// Returns the free blocks from `first` on.
    pub fn free_from(&self, first: Option<BlockId>) -> impl Iterator<Item = BlockId> + '_ {
        std::iter::successors(first, |&block| self.free_after(block))
    }

    /// Returns the free block after another.
    pub fn free_after(&self, id: BlockId) -> Option<BlockId> {
        let next = self.next(id);
        if self.is_block(next) {
            return Some(next);
        }
        let mut later = self.sentinels().filter(|&sentinel| sentinel > next);
        later.find_map(|sentinel| self.first_of_ring(sentinel))
    }

    /// Returns the free block before another.
    pub fn free_before(&self, id: BlockId) -> Option<BlockId> {
        let prev = self.prev(id);
        if self.is_block(prev) {
            return Some(prev);
        }
        let earlier = self.sentinels().rev().filter(|&sentinel| sentinel < prev);
        earlier.map(|sentinel| self.prev(sentinel)).find(|&last| self.is_block(last))
    }

    fn is_block(&self, id: u32) -> bool {
        id != NULL_BLOCK && (id as usize) < self.len()
    }

    /// Returns the sentinels in ascending order.
    fn sentinels(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        std::iter::once(NULL_BLOCK).chain(self.len() as u32..self.links.len() as u32)
    }
}
