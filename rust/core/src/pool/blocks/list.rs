//! Doubly linked lists of blocks that count their blocks: the free queue and the pinned tier.
//!
//! Between calls, these rules hold:
//!
//! - A list and its sentinel form one ring.
//! - Both directions have the same blocks.
//! - A block is in at most one list.

use super::Blocks;
use super::links::follow;
use super::list_span::ListSpan;
use super::open_ends::OpenEnds;
use super::run::{IdRun, Part};
use crate::block::{BlockId, NULL_BLOCK};

/// A ring of blocks that knows its length.
#[derive(Clone, Debug)]
pub(crate) struct BlockList {
    /// An id that is not a block of the list.
    sentinel: u32,
    len: usize,
}

impl BlockList {
    /// Creates the list of all blocks of a fresh pool except the null block, in order. Zeroed links
    /// already are this list, except for its end.
    pub(crate) fn of_all(blocks: &mut Blocks) -> Self {
        let num_blocks = blocks.len();
        blocks.join(num_blocks as u32 - 1, NULL_BLOCK);
        Self { sentinel: NULL_BLOCK, len: num_blocks - 1 }
    }

    /// Creates an empty list.
    pub(crate) fn new(blocks: &mut Blocks, sentinel: u32) -> Self {
        blocks.make_ring(sentinel);
        Self { sentinel, len: 0 }
    }

    /// Returns the number of blocks in the list.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Moves the first `n` blocks, in order, to the end of `out`. The caller has checked that the
    /// list has `n` blocks.
    pub(crate) fn take_front(&mut self, blocks: &mut Blocks, n: usize, out: &mut Vec<BlockId>) {
        debug_assert!(n <= self.len);
        let rest = follow(blocks.links(), blocks.next(self.sentinel), n, out);
        blocks.join(self.sentinel, rest);
        self.len -= n;
    }

    pub(crate) fn first(&self, blocks: &Blocks) -> Option<BlockId> {
        blocks.first_of_ring(self.sentinel)
    }

    pub(crate) fn remove(&mut self, blocks: &mut Blocks, block: BlockId) {
        blocks.unlink(block);
        self.len -= 1;
    }

    pub(crate) fn remove_span(&mut self, blocks: &mut Blocks, span: &ListSpan) {
        blocks.unlink_span(span);
        self.len -= span.len;
    }

    pub(crate) fn push_span(&mut self, blocks: &mut Blocks, span: &ListSpan) {
        if span.len > 0 {
            blocks.join(blocks.prev(self.sentinel), span.front);
            blocks.join(span.back, self.sentinel);
            self.len += span.len;
        }
    }

    pub(crate) fn push_back(&mut self, blocks: &mut Blocks, block: BlockId) {
        blocks.push_to_ring(self.sentinel, block);
        self.len += 1;
    }

    /// Opens both ends of the list. Until [`Self::close`], no other code is allowed to change them.
    pub(crate) fn open(&self, blocks: &Blocks) -> OpenEnds {
        let rest = (self.len > 0).then(|| blocks.next(self.sentinel));
        OpenEnds::new(self.sentinel, rest, blocks.prev(self.sentinel))
    }

    /// Joins the blocks that were added at both ends with the blocks between them.
    pub(crate) fn close(&mut self, blocks: &mut Blocks, ends: &OpenEnds) {
        if ends.num_added > 0 {
            blocks.join(ends.back, self.sentinel);
            if let Some(rest) = ends.rest {
                blocks.join(ends.front, rest);
            }
            self.len += ends.num_added;
        }
    }

    /// Returns the blocks from front to back.
    pub(crate) fn iter<'a>(&self, blocks: &'a Blocks) -> impl Iterator<Item = BlockId> + use<'a> {
        blocks.ring(self.sentinel)
    }

    /// Returns the blocks from back to front. It follows the links in the other direction.
    pub(crate) fn iter_back<'a>(
        &self,
        blocks: &'a Blocks,
    ) -> impl Iterator<Item = BlockId> + use<'a> {
        let sentinel = self.sentinel;
        std::iter::successors(Some(blocks.prev(sentinel)), |&block| Some(blocks.prev(block)))
            .take_while(move |&block| block != sentinel)
    }
}

/// Releases blocks and adds those that become free to the ends of a list.
impl Blocks {
    /// Drops a reference to each block. A block that becomes free is added:
    ///
    /// - at the back, if it is cached only under its own hash,
    /// - at the front, if it is uncached and `uncached_first` holds.
    ///
    /// Stops before any other block that would become free, and before a null block. Returns the
    /// number of blocks before it.
    pub(crate) fn release_to(
        &mut self,
        ids: Part<'_>,
        uncached_first: bool,
        ends: &mut OpenEnds,
    ) -> usize {
        let uncached_first = uncached_first && ends.is_front_apart();
        match ids {
            Part::Run(run) if self.release_run(IdRun::of(run), uncached_first, ends) => run.len(),
            Part::Run(ids) | Part::Scattered(ids) => self.release_each(ids, uncached_first, ends),
        }
    }

    /// Drops a reference to uncached blocks, from last to first, and adds them at the front. Stops
    /// at any other block. Returns the number of blocks that are left.
    pub(crate) fn release_uncached_to(&mut self, ids: &[BlockId], ends: &mut OpenEnds) -> usize {
        if ends.is_front_apart() { self.release_uncached(ids, ends) } else { ids.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::blocks::fingerprint::KeyLayout;

    /// Returns a fresh pool of `num_blocks` blocks and its free queue.
    fn fresh(num_blocks: usize) -> (Blocks, BlockList) {
        let mut blocks = Blocks::new(num_blocks, KeyLayout::new(1), 0);
        let free = BlockList::of_all(&mut blocks);
        (blocks, free)
    }

    fn ids(list: &BlockList, blocks: &Blocks) -> Vec<BlockId> {
        let forward: Vec<_> = list.iter(blocks).collect();
        let mut backward: Vec<_> = list.iter_back(blocks).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        assert_eq!(forward.len(), list.len());
        forward
    }

    #[test]
    fn a_fresh_queue_is_in_order_of_block_id() {
        let (mut blocks, free) = fresh(5);
        assert_eq!(ids(&free, &blocks), [1, 2, 3, 4]);
        let pinned = BlockList::new(&mut blocks, 5);
        assert_eq!(ids(&pinned, &blocks), [0; 0]);
    }

    #[test]
    fn a_pool_of_the_null_block_alone_has_an_empty_queue() {
        let (blocks, free) = fresh(1);
        assert_eq!(ids(&free, &blocks), [0; 0]);
    }

    #[test]
    fn blocks_go_to_the_front_in_their_order_and_to_the_back_in_theirs() {
        let (mut blocks, mut free) = fresh(8);
        let mut taken = Vec::new();
        free.take_front(&mut blocks, 5, &mut taken);
        assert_eq!(taken, [1, 2, 3, 4, 5]);
        let mut ends = free.open(&blocks);
        for block in [4, 2] {
            ends.push_front(&mut blocks, block);
        }
        free.close(&mut blocks, &ends);
        free.push_back(&mut blocks, 5);
        assert_eq!(ids(&free, &blocks), [4, 2, 6, 7, 5]);
        free.remove(&mut blocks, 6);
        assert_eq!(ids(&free, &blocks), [4, 2, 7, 5]);
    }

    #[test]
    fn an_emptied_queue_takes_blocks_at_both_ends_in_any_order() {
        for at_front in [[true, false, true], [true, true, false], [false, true, true]] {
            let (mut blocks, mut free) = fresh(4);
            free.take_front(&mut blocks, 3, &mut Vec::new());
            let mut ends = free.open(&blocks);
            for (block, at_front) in (1..).zip(at_front) {
                match at_front {
                    true => ends.push_front(&mut blocks, block),
                    false => ends.push_back(&mut blocks, block),
                }
            }
            free.close(&mut blocks, &ends);
            let end = |front| (1..).zip(at_front).filter(move |&(_, at)| at == front);
            let expected: Vec<_> = end(true).chain(end(false)).map(|(block, _)| block).collect();
            assert_eq!(ids(&free, &blocks), expected);
        }
    }
}
