//! Rings of blocks: each is closed by a sentinel, an id that is no block of the ring. The sentinel of
//! the free queue is the null block; those of other rings lie behind the last block.

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
        join(self.links_mut(), left, right);
    }

    /// Makes a sentinel a ring without blocks.
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

    /// Puts a block behind the last of its ring so far, or the sentinel behind the last block.
    pub(crate) fn append(&mut self, last: u32, next: u32) {
        self.join(last, next);
    }

    /// Removes blocks from their ring.
    pub(crate) fn unlink_span(&mut self, span: &ListSpan) {
        span.unlink(self.links_mut());
    }

    /// Removes a block from its ring.
    pub(crate) fn unlink(&mut self, block: BlockId) {
        unlink(self.links_mut(), block);
    }

    /// Moves all blocks of a ring before those of another.
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

/// The free blocks: all rings one after another, in the order of their sentinels. Those of the free
/// queue come first, then those of the pinned tier.
impl Blocks {
    /// Returns the first free block.
    pub fn first_free(&self) -> Option<BlockId> {
        self.first_from(NULL_BLOCK)
    }

    /// Returns the last free block.
    pub fn last_free(&self) -> Option<BlockId> {
        self.last_before(None)
    }

    /// Returns the free blocks from one on.
    pub fn free_from(&self, first: Option<BlockId>) -> impl Iterator<Item = BlockId> + '_ {
        std::iter::successors(first, |&block| self.free_after(block))
    }

    /// Returns the free block behind another.
    pub fn free_after(&self, id: BlockId) -> Option<BlockId> {
        let next = self.next(id);
        match self.is_block(next) {
            true => Some(next),
            false => self.first_from(self.sentinel_after(next)?),
        }
    }

    /// Returns the free block before another.
    pub fn free_before(&self, id: BlockId) -> Option<BlockId> {
        let prev = self.prev(id);
        if self.is_block(prev) { Some(prev) } else { self.last_before(Some(prev)) }
    }

    /// Returns the first block of the ring of a sentinel, or of the next that has a block.
    fn first_from(&self, sentinel: u32) -> Option<BlockId> {
        let sentinels =
            std::iter::successors(Some(sentinel), |&sentinel| self.sentinel_after(sentinel));
        sentinels.map(|sentinel| self.next(sentinel)).find(|&first| self.is_block(first))
    }

    /// Returns the last block of the rings before the one of this sentinel, or of all.
    fn last_before(&self, end: Option<u32>) -> Option<BlockId> {
        let behind_last = self.links().len() as u32;
        let before = |&sentinel: &u32| self.sentinel_before(sentinel);
        let sentinels =
            std::iter::successors(self.sentinel_before(end.unwrap_or(behind_last)), before);
        sentinels.map(|sentinel| self.prev(sentinel)).find(|&last| self.is_block(last))
    }

    fn is_block(&self, id: u32) -> bool {
        id != NULL_BLOCK && (id as usize) < self.len()
    }

    fn sentinel_after(&self, sentinel: u32) -> Option<u32> {
        let next = if sentinel == NULL_BLOCK { self.len() as u32 } else { sentinel + 1 };
        ((next as usize) < self.links().len()).then_some(next)
    }

    fn sentinel_before(&self, sentinel: u32) -> Option<u32> {
        match sentinel {
            NULL_BLOCK => None,
            first if first as usize == self.len() => Some(NULL_BLOCK),
            _ => Some(sentinel - 1),
        }
    }
}
