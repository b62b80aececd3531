//! The free queue: a doubly linked list of the blocks that nobody uses, in the order in which they
//! are recycled. A second list of the same kind is the pinned tier.
//!
//! Between calls: a list and its sentinel form one ring; following `next` and following `prev` see
//! the same blocks; a block is in at most one list.

use super::Blocks;
use super::links::{follow, join, unlink};
use super::list_span::ListSpan;
use super::records::Ends;
use super::run::{IdRun, Ids};
use crate::block::{BlockId, NULL_BLOCK};

/// One ring of blocks. `sentinel` is an id that is no block of the list.
#[derive(Clone, Debug)]
pub struct BlockList {
    sentinel: u32,
    len: usize,
}

/// The links of every list.
impl Blocks {
    /// The list of all free blocks of a fresh pool (every block but number 0, in order) and an
    /// empty second list.
    pub fn lists(&mut self) -> (BlockList, BlockList) {
        let num_blocks = self.len();
        let free = BlockList { sentinel: 0, len: num_blocks - 1 };
        self.join(num_blocks as u32 - 1, free.sentinel);
        (free, self.empty_list(num_blocks as u32))
    }

    fn next(&self, id: u32) -> u32 {
        self.links()[id as usize].next_of(id)
    }

    fn prev(&self, id: u32) -> u32 {
        self.links()[id as usize].prev_of(id)
    }

    /// The block behind another, in its ring or the next one that has a block.
    pub(crate) fn block_after(&self, id: BlockId) -> Option<BlockId> {
        let next = self.next(id);
        match self.is_block(next) {
            true => Some(next),
            false => self.block_from(self.sentinel_after(next)?),
        }
    }

    /// The block before another, in its ring or the last one before it that has a block.
    pub(crate) fn block_before(&self, id: BlockId) -> Option<BlockId> {
        let prev = self.prev(id);
        if self.is_block(prev) { Some(prev) } else { self.block_up_to(Some(prev)) }
    }

    /// The first block of the ring of this sentinel, or of the next one that has a block.
    pub(crate) fn block_from(&self, sentinel: u32) -> Option<BlockId> {
        let sentinels =
            std::iter::successors(Some(sentinel), |&sentinel| self.sentinel_after(sentinel));
        sentinels.map(|sentinel| self.next(sentinel)).find(|&first| self.is_block(first))
    }

    /// The last block of the rings before the one of this sentinel, or of all.
    pub(crate) fn block_up_to(&self, end: Option<u32>) -> Option<BlockId> {
        let behind_last = self.links().len() as u32;
        let before = |&sentinel: &u32| self.sentinel_before(sentinel);
        let sentinels =
            std::iter::successors(self.sentinel_before(end.unwrap_or(behind_last)), before);
        sentinels.map(|sentinel| self.prev(sentinel)).find(|&last| self.is_block(last))
    }

    fn is_block(&self, id: u32) -> bool {
        id != NULL_BLOCK && (id as usize) < self.len()
    }

    /// The sentinel of the free queue is the first one; those of other rings lie behind the blocks.
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

    /// An empty list with a sentinel of its own.
    pub fn empty_list(&mut self, sentinel: u32) -> BlockList {
        self.join(sentinel, sentinel);
        BlockList { sentinel, len: 0 }
    }

    fn join(&mut self, left: u32, right: u32) {
        join(self.links_mut(), left, right);
    }
}

/// Rings of which nobody counts the blocks.
impl Blocks {
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

    pub(crate) fn last_of_ring(&self, sentinel: u32) -> u32 {
        self.prev(sentinel)
    }

    /// Puts a block behind another, which is the last of its ring so far, or the sentinel behind
    /// the last block.
    pub(crate) fn append(&mut self, last: u32, next: u32) {
        self.join(last, next);
    }

    /// Takes blocks that stand side by side out of the ring that they are in.
    pub(crate) fn unlink_run(&mut self, run: &ListSpan) {
        run.unlink(self.links_mut());
    }

    /// Takes a block out of the ring that it is in.
    pub(crate) fn unlink(&mut self, block: BlockId) {
        unlink(self.links_mut(), block);
    }

    /// Moves all of a ring before the blocks of another.
    pub(crate) fn prepend_ring(&mut self, from: u32, to: u32) {
        let (first, last) = (self.next(from), self.prev(from));
        if first == from {
            return;
        }
        self.join(last, self.next(to));
        self.join(to, first);
        self.join(from, from);
    }

    /// The blocks of a ring, in order.
    pub(crate) fn ring(&self, sentinel: u32) -> impl Iterator<Item = BlockId> + '_ {
        std::iter::successors(self.first_of_ring(sentinel), move |&block| {
            Some(self.next(block)).filter(|&next| next != sentinel)
        })
    }
}

impl BlockList {
    /// Number of blocks in the list.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the list has no block.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the first `n` blocks, in order, to the end of `out`. The caller has checked that
    /// there are so many.
    pub fn take_front(&mut self, links: &mut Blocks, n: usize, out: &mut Vec<BlockId>) {
        debug_assert!(n <= self.len);
        let block = follow(links.links(), links.next(self.sentinel), n, out);
        links.join(self.sentinel, block);
        self.len -= n;
    }

    /// The first block, if there is one.
    pub fn first(&self, links: &Blocks) -> Option<BlockId> {
        links.first_of_ring(self.sentinel)
    }

    /// Takes one block out of the middle.
    pub fn remove(&mut self, links: &mut Blocks, block: BlockId) {
        links.unlink(block);
        self.len -= 1;
    }

    /// Takes blocks that stand side by side out of the middle.
    pub fn remove_run(&mut self, links: &mut Blocks, run: &ListSpan) {
        links.unlink_run(run);
        self.len -= run.len;
    }

    /// Puts blocks that stand side by side at the end.
    pub fn push_run(&mut self, links: &mut Blocks, run: &ListSpan) {
        if run.len > 0 {
            links.join(links.prev(self.sentinel), run.front);
            links.join(run.back, self.sentinel);
            self.len += run.len;
        }
    }

    /// Puts one block at the end.
    pub fn push_back(&mut self, links: &mut Blocks, block: BlockId) {
        links.join(links.prev(self.sentinel), block);
        links.join(block, self.sentinel);
        self.len += 1;
    }

    /// Puts one block behind the last one of `run`, or at the end if it has none. Until
    /// [`Self::close_runs`], nothing else may touch the list's end.
    pub fn push_to_back_run(&mut self, links: &mut Blocks, run: &mut BackRun, block: BlockId) {
        let last = run.last.unwrap_or_else(|| links.prev(self.sentinel));
        links.join(last, block);
        run.last = Some(block);
        self.len += 1;
    }

    /// Drops a reference to each block. Those that are free then go to the end of `back` if they are
    /// cached under their own hash alone, and to that of `front`, if there is one, if they are not
    /// cached. Stops at any other block that is to be free: how many come before it.
    pub fn drop_to_runs(
        &mut self,
        links: &mut Blocks,
        (front, back): (Option<&mut FrontRun>, &mut BackRun),
        piece: Ids<'_>,
    ) -> usize {
        let front = front.filter(|front| front.after.is_some());
        let end = back.last.unwrap_or_else(|| links.prev(self.sentinel));
        let mut ends = Ends {
            front: front.as_ref().map_or(self.sentinel, |front| front.last),
            is_front_open: front.is_some(),
            back: end,
            num_free: 0,
        };
        let records = links.records_mut();
        let num_dropped = match piece {
            Ids::Run(row) if records.drop_row_to_ends(IdRun::of(row), &mut ends) => row.len(),
            Ids::Run(blocks) | Ids::Scattered(blocks) => records.drop_to_ends(blocks, &mut ends),
        };
        self.len += ends.num_free;
        if let Some(front) = front {
            front.last = ends.front;
        }
        if ends.back != end {
            back.last = Some(ends.back);
        }
        num_dropped
    }

    /// Joins the blocks of both runs with what is between them.
    pub fn close_runs(&mut self, links: &mut Blocks, front: FrontRun, back: BackRun) {
        if let Some(after) = front.after {
            links.join(front.last, after);
        }
        if let Some(last) = back.last {
            links.join(last, self.sentinel);
        }
    }

    /// Starts a run of blocks at the front; see [`FrontRun`].
    pub fn front_run(&self, links: &Blocks) -> FrontRun {
        let after = (!self.is_empty()).then(|| links.next(self.sentinel));
        FrontRun { last: self.sentinel, after }
    }

    /// Puts one block behind the last one of `run`. Until [`Self::close_runs`], nothing else may
    /// touch the list's front.
    pub fn push_to_front_run(&mut self, links: &mut Blocks, run: &mut FrontRun, block: BlockId) {
        if run.after.is_none() {
            links.join(block, links.next(run.last));
        }
        links.join(run.last, block);
        run.last = block;
        self.len += 1;
    }

    /// Drops a reference to blocks, the last of them first, that become free and are cached nowhere,
    /// and puts them behind the last one of `run`: how many are left, from the first on. Does nothing
    /// where the list was empty before the run: see [`FrontRun`].
    pub fn drop_to_front_run(
        &mut self,
        states: &mut Blocks,
        run: &mut FrontRun,
        blocks: &[BlockId],
    ) -> usize {
        if run.after.is_none() {
            return blocks.len();
        }
        let mut last = run.last;
        let num_left = states.records_mut().drop_uncached_behind(blocks, &mut last);
        run.last = last;
        self.len += blocks.len() - num_left;
        num_left
    }

    /// The blocks, front first.
    pub fn iter<'a>(&'a self, links: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        let first = links.next(self.sentinel);
        std::iter::successors(Some(first), |&block| Some(links.next(block)))
            .take_while(|&block| block != self.sentinel)
    }

    /// The blocks, back first, following the other links.
    pub fn iter_back<'a>(&'a self, links: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        let last = links.prev(self.sentinel);
        std::iter::successors(Some(last), |&block| Some(links.prev(block)))
            .take_while(|&block| block != self.sentinel)
    }
}

/// Blocks that are being put at the front of a list one after the other, so that the first one
/// put stays the first of the list.
#[derive(Clone, Copy, Debug)]
pub struct FrontRun {
    last: u32,
    /// What the run is to be joined with; `None` if the list was empty, and both its ends may
    /// grow: then each block is joined at once.
    after: Option<u32>,
}

/// Blocks that are being put at the end of a list one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackRun {
    last: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::blocks::fingerprint::KeyLayout;

    fn states(num_blocks: usize) -> Blocks {
        Blocks::new(num_blocks, KeyLayout::new(1))
    }

    fn ids(list: &BlockList, links: &Blocks) -> Vec<BlockId> {
        let forward: Vec<_> = list.iter(links).collect();
        let mut backward: Vec<_> = list.iter_back(links).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        assert_eq!(forward.len(), list.len());
        forward
    }

    #[test]
    fn a_fresh_queue_is_in_order_of_block_id() {
        let mut links = states(5);
        let (free, pinned) = links.lists();
        assert_eq!(ids(&free, &links), [1, 2, 3, 4]);
        assert_eq!(ids(&pinned, &links), [0; 0]);
    }

    #[test]
    fn a_pool_of_the_null_block_alone_has_an_empty_queue() {
        let mut links = states(1);
        let (free, _) = links.lists();
        assert!(free.is_empty());
        assert_eq!(ids(&free, &links), [0; 0]);
    }

    #[test]
    fn runs_go_to_the_front_in_their_order_and_to_the_back_in_theirs() {
        let mut links = states(8);
        let (mut free, _) = links.lists();
        let mut taken = Vec::new();
        free.take_front(&mut links, 5, &mut taken);
        assert_eq!(taken, [1, 2, 3, 4, 5]);
        let mut run = free.front_run(&links);
        for block in [4, 2] {
            free.push_to_front_run(&mut links, &mut run, block);
        }
        free.close_runs(&mut links, run, BackRun::default());
        free.push_back(&mut links, 5);
        assert_eq!(ids(&free, &links), [4, 2, 6, 7, 5]);
        free.remove(&mut links, 6);
        assert_eq!(ids(&free, &links), [4, 2, 7, 5]);
    }

    #[test]
    fn an_emptied_queue_takes_runs_at_both_ends() {
        let mut links = states(4);
        let (mut free, _) = links.lists();
        free.take_front(&mut links, 3, &mut Vec::new());
        let mut front = free.front_run(&links);
        let mut back = BackRun::default();
        free.push_to_front_run(&mut links, &mut front, 3);
        free.push_to_back_run(&mut links, &mut back, 1);
        free.push_to_front_run(&mut links, &mut front, 2);
        free.close_runs(&mut links, front, back);
        assert_eq!(ids(&free, &links), [3, 2, 1]);
    }
}
