//! The free queue and the pinned tier, in vLLM's order.

use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::{
    BlockList, Blocks, IdRun, ListSpan, OpenEnds, Part, Parts, PrefetchedParts,
};

/// The end of the free queue to which released blocks go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecycleOrder {
    /// Uncached blocks go to the front of the free queue (vLLM PR 43447).
    #[default]
    UncachedFirst,
    /// All blocks go to the back, as before that pull request.
    Fifo,
}

/// An end of the free queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEnd {
    /// Blocks at this end are allocated first.
    Front,
    /// Blocks at this end are allocated last.
    Back,
}

/// The number of blocks that are processed while the records of the next blocks are fetched from
/// memory.
const READ_AT_ONCE: usize = 1 << 8;

/// The number of blocks of a short table. A larger buffer takes longer to clear than to fill.
const FEW: usize = 1 << 5;

/// The free blocks in the order in which they are allocated, and the pinned blocks. When the queue
/// is empty, pinned blocks follow, the oldest first (vLLM PR 40676).
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub free: BlockList,
    pub pinned: BlockList,
    order: RecycleOrder,
}

impl Queue {
    /// Creates the queue of a new pool in which all blocks are free.
    pub(crate) fn new(blocks: &mut Blocks, order: RecycleOrder) -> Self {
        let free = BlockList::of_all(blocks);
        let pinned = BlockList::new(blocks, blocks.len() as u32);
        Self { free, pinned, order }
    }

    pub(crate) fn len(&self) -> usize {
        self.free.len() + self.pinned.len()
    }

    /// Moves `n` blocks from the front of the queue to the end of `out`. The caller has checked
    /// that `n` blocks are free.
    pub(crate) fn evict(&mut self, blocks: &mut Blocks, n: usize, out: &mut Vec<BlockId>) {
        if n > self.free.len() {
            self.demote(blocks, n - self.free.len());
        }
        self.free.take_front(blocks, n, out);
    }

    /// Moves the `n` oldest pinned blocks to the end of the queue. They stay cached.
    pub(crate) fn demote(&mut self, blocks: &mut Blocks, n: usize) {
        let mut demoted = Vec::with_capacity(n);
        self.pinned.take_front(blocks, n.min(self.pinned.len()), &mut demoted);
        for block in demoted {
            blocks.set_pinned(block, false);
            self.free.push_back(blocks, block);
        }
    }

    /// Adds a reference to each block. A free block leaves the queue. Null blocks are skipped.
    #[inline(never)]
    pub(crate) fn hit(&mut self, blocks: &mut Blocks, ids: &[BlockId]) {
        let mut span = ListSpan::default();
        if ids.len() < IdRun::MIN_LEN {
            span = self.hit_each(blocks, ids, span);
            return self.unlink(blocks, span);
        }
        let mut parts = PrefetchedParts::new(blocks, ids.chunks(READ_AT_ONCE));
        while let Some(part) = parts.next(blocks) {
            for piece in Parts::of(part, IdRun::MIN_LEN) {
                span = match piece {
                    Part::Run(run) => self.hit_run(blocks, run, span),
                    Part::Scattered(ids) => self.hit_each(blocks, ids, span),
                };
            }
        }
        self.unlink(blocks, span);
    }

    /// Hits a run of blocks. `span` holds neighbours in a list that were hit and are still linked.
    fn hit_run(&mut self, blocks: &mut Blocks, run: &[BlockId], mut span: ListSpan) -> ListSpan {
        match blocks.hit_run(IdRun::of(run)) {
            None => self.hit_each(blocks, run, span),
            Some(free) => {
                if !free.is_empty() && !span.join(blocks.links(), &free) {
                    self.unlink(blocks, std::mem::replace(&mut span, free));
                }
                span
            }
        }
    }

    fn hit_each(
        &mut self,
        blocks: &mut Blocks,
        mut ids: &[BlockId],
        mut span: ListSpan,
    ) -> ListSpan {
        loop {
            let num_hit = blocks.hit_each(ids, &mut span);
            let Some((&block, rest)) = ids[num_hit..].split_first() else { return span };
            if block != NULL_BLOCK {
                blocks.add_reference(block);
                self.unlink(blocks, std::mem::replace(&mut span, ListSpan::of(block)));
            }
            ids = rest;
        }
    }

    /// Takes neighbours out of their list.
    pub(crate) fn unlink(&mut self, blocks: &mut Blocks, span: ListSpan) {
        let list = match span.first().is_some_and(|block| blocks.is_pinned(block)) {
            true => &mut self.pinned,
            false => &mut self.free,
        };
        list.remove_span(blocks, &span);
    }

    /// Drops a reference to each block. Blocks that lose their last reference become free, in the
    /// given order: the first is allocated first.
    #[inline(never)]
    pub(crate) fn release(&mut self, blocks: &mut Blocks, ids: &[BlockId]) {
        let mut ends = self.free.open(blocks);
        self.release_to(blocks, ids, &mut ends);
        self.free.close(blocks, &ends);
    }

    /// Releases blocks like [`Self::release`], but the last block first.
    pub(crate) fn release_table(&mut self, blocks: &mut Blocks, table: &[BlockId]) {
        match table.len() <= FEW {
            true => self.release_reversed::<FEW>(blocks, table),
            false => self.release_reversed::<READ_AT_ONCE>(blocks, table),
        }
    }

    /// Releases the last block first, `N` blocks at once.
    fn release_reversed<const N: usize>(&mut self, blocks: &mut Blocks, table: &[BlockId]) {
        let mut reversed = [NULL_BLOCK; N];
        let mut ends = self.free.open(blocks);
        let mut parts = PrefetchedParts::new(blocks, table.rchunks(N));
        while let Some(part) = parts.next(blocks) {
            let num = reverse(part, &mut reversed);
            self.release_to(blocks, &reversed[..num], &mut ends);
        }
        self.free.close(blocks, &ends);
    }

    fn release_to(&mut self, blocks: &mut Blocks, ids: &[BlockId], ends: &mut OpenEnds) {
        if ids.len() < IdRun::MIN_LEN {
            return self.release_part(blocks, Part::Scattered(ids), ends);
        }
        for part in Parts::of(ids, IdRun::MIN_LEN) {
            self.release_part(blocks, part, ends);
        }
    }

    #[inline]
    fn release_part(&mut self, blocks: &mut Blocks, mut part: Part<'_>, ends: &mut OpenEnds) {
        let (Part::Run(mut ids) | Part::Scattered(mut ids)) = part;
        loop {
            let num = blocks.release_to(part, self.order != RecycleOrder::Fifo, ends);
            let Some((&block, rest)) = ids[num..].split_first() else { break };
            if block != NULL_BLOCK && blocks.remove_reference(block) {
                self.push(blocks, block, ends);
            }
            (ids, part) = (rest, Part::Scattered(rest));
        }
    }

    pub(super) fn push(&mut self, blocks: &mut Blocks, block: BlockId, ends: &mut OpenEnds) {
        if blocks.is_pinned(block) {
            self.pinned.push_back(blocks, block);
        } else if blocks.is_cached(block) || self.order == RecycleOrder::Fifo {
            ends.push_back(blocks, block);
        } else {
            ends.push_front(blocks, block);
        }
    }

    /// Drops a reference to each block. Blocks that lose their last reference go to the end of the
    /// queue, cached or not (vLLM's `unpin_blocks`).
    pub(crate) fn release_to_back(
        &mut self,
        blocks: &mut Blocks,
        ids: impl IntoIterator<Item = BlockId>,
    ) {
        for block in ids {
            if blocks.remove_reference(block) {
                blocks.set_pinned(block, false);
                self.free.push_back(blocks, block);
            }
        }
    }

    /// Unpins a block that lost its keys. A free block moves from the pinned tier to the queue.
    pub(crate) fn uncached(&mut self, blocks: &mut Blocks, block: BlockId) {
        if blocks.is_pinned(block) {
            blocks.set_pinned(block, false);
            if blocks.ref_count(block) == 0 {
                self.pinned.remove(blocks, block);
                self.enqueue(blocks, block);
            }
        }
    }

    /// Puts a free block into the queue.
    pub(crate) fn enqueue(&mut self, blocks: &mut Blocks, block: BlockId) {
        let mut ends = self.free.open(blocks);
        self.push(blocks, block, &mut ends);
        self.free.close(blocks, &ends);
    }

    /// Puts blocks without references at an end of the queue, in their order.
    pub(crate) fn enqueue_at(&mut self, blocks: &mut Blocks, ids: &[BlockId], end: QueueEnd) {
        let mut ends = self.free.open(blocks);
        for &block in ids {
            blocks.set_pinned(block, false);
            match end {
                QueueEnd::Front => ends.push_front(blocks, block),
                QueueEnd::Back => ends.push_back(blocks, block),
            }
        }
        self.free.close(blocks, &ends);
    }
}

/// Writes blocks to `reversed`, the last block first and without null blocks. Returns their number.
fn reverse(ids: &[BlockId], reversed: &mut [BlockId]) -> usize {
    if ids.iter().fold(true, |all, &block| all & (block != NULL_BLOCK)) {
        reversed.iter_mut().zip(ids.iter().rev()).for_each(|(to, &block)| *to = block);
        return ids.len();
    }
    let held = ids.iter().rev().filter(|&&block| block != NULL_BLOCK);
    reversed.iter_mut().zip(held).map(|(to, &block)| *to = block).count()
}
