//! Who holds which block: blocks are taken from the free queue, touched by hits, and recycled when
//! nobody holds them any more.

use super::order::RecycleOrder;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::block_pool::BlockPool;
use crate::pool::blocks::Dropped;
use crate::pool::blocks::list::{BackRun, FrontRun};
use crate::pool::blocks::list_span::ListSpan;
use crate::pool::blocks::records::{Taken, prefetch_ahead};
use crate::pool::blocks::run::{IdRun, Ids, Runs};
use crate::pool::index::{HashTable, Place};
use crate::pool::observation::Observation;

/// Blocks that are handled while the records of as many others are fetched from memory.
const READ_AT_ONCE: usize = 1 << 8;

impl BlockPool {
    /// Takes `n` blocks from the front of the free queue to the end of `out`, evicting what they
    /// cached. The caller has checked that so many are free.
    pub fn take(&mut self, n: usize, out: &mut Vec<BlockId>) {
        if n > self.free.len() {
            if self.adaptive.is_some() {
                self.demote_listed(n - self.free.len());
            }
            if n > self.free.len() {
                self.demote_n(n - self.free.len());
            }
        }
        let first = out.len();
        self.free.take_front(&mut self.blocks, n, out);
        self.note(|| Observation::Taking(n));
        out[first..].chunks(HashTable::BATCH).for_each(|batch| self.reuse_batch(batch));
    }

    fn reuse_batch(&mut self, batch: &[BlockId]) {
        batch.iter().for_each(|&block| self.note(|| Observation::Taken(block)));
        let mut cached = [(NULL_BLOCK, Place::default()); HashTable::BATCH];
        let Taken { num_cached, plain, is_any_linked } =
            self.blocks.records_mut().take_uncached(batch, &mut cached);
        let cached = &mut cached[..num_cached];
        cached.iter_mut().for_each(|(_, key)| *key = self.index.place(key.fingerprint));
        let cached = &*cached;
        if self.evictions_by_group.is_some() {
            self.note_evictions(cached);
        }
        self.index.prefetch(cached.iter().map(|&(_, key)| key));
        let mut next = 0;
        while next < num_cached {
            let num_plain = if self.is_watched() { 0 } else { (plain >> next).trailing_ones() };
            let plain = &cached[next..][..num_plain as usize];
            next += self.evict_plain_ones(plain, is_any_linked);
            if next < num_cached {
                self.reuse(cached[next].0);
                next += 1;
            }
        }
    }

    /// Reuses cached blocks without alias keys up to one of which more has to change than its own
    /// key; how many.
    fn evict_plain_ones(&mut self, plain: &[(BlockId, Place)], are_linked: bool) -> usize {
        let num_evicted = self.index.simple_changes().remove_each(plain);
        let evicted = &plain[..num_evicted];
        if are_linked {
            self.cut_each(evicted);
        }
        self.blocks.take_each(evicted.iter().map(|&(block, _)| block));
        self.evictions += num_evicted as u64;
        self.version += num_evicted as u64;
        self.num_cached -= num_evicted;
        num_evicted
    }

    fn reuse(&mut self, block: BlockId) {
        self.cut_at(block);
        if self.blocks.take_plain(block) {
            self.forget_plain_key(block);
        } else {
            self.blocks.set_ref_count(block, 1);
            self.remove_keys(block);
        }
        self.evictions += 1;
    }

    /// Moves the `n` oldest pinned blocks to the end of the free queue (vLLM PR 40676). They keep
    /// their hash until they are reused.
    pub fn demote_n(&mut self, n: usize) {
        let mut demoted = Vec::with_capacity(n);
        self.pinned.take_front(&mut self.blocks, n.min(self.pinned.len()), &mut demoted);
        for block in demoted {
            self.blocks.set_pinned(block, false);
            self.free.push_back(&mut self.blocks, block);
        }
    }

    /// Adds a reference to each block; a free block leaves its queue.
    #[inline(never)]
    pub fn touch(&mut self, blocks: &[BlockId]) {
        if self.adaptive.is_some() {
            return self.touch_graded(blocks);
        }
        if self.is_observed() {
            blocks.iter().for_each(|&block| self.touch_observed(block));
        } else {
            self.touch_runs(blocks);
        }
    }

    fn touch_runs(&mut self, blocks: &[BlockId]) {
        let mut run = ListSpan::default();
        if blocks.len() < IdRun::MIN_LEN {
            run = self.touch_each(blocks, run);
            return self.unlink(run);
        }
        let mut parts = prefetch_ahead(self.blocks.records(), blocks.chunks(READ_AT_ONCE));
        while let Some(part) = parts.next(self.blocks.records()) {
            for piece in Runs::of(part, IdRun::MIN_LEN) {
                run = match piece {
                    Ids::Run(row) => self.touch_row(row, run),
                    Ids::Scattered(blocks) => self.touch_each(blocks, run),
                };
            }
        }
        self.unlink(run);
    }

    /// `run` are touched blocks that stand side by side in their queue and still have to leave it.
    fn touch_row(&mut self, row: &[BlockId], mut run: ListSpan) -> ListSpan {
        match self.blocks.records_mut().touch_row(IdRun::of(row)) {
            None => self.touch_each(row, run),
            Some(free) => {
                if !free.is_empty() && !run.join(self.blocks.links(), &free) {
                    self.unlink(std::mem::replace(&mut run, free));
                }
                run
            }
        }
    }

    fn touch_each(&mut self, mut blocks: &[BlockId], mut run: ListSpan) -> ListSpan {
        loop {
            let num_touched = self.blocks.records_mut().touch_beside(blocks, &mut run);
            let Some((&block, rest)) = blocks[num_touched..].split_first() else { return run };
            if block == NULL_BLOCK {
                self.touch_null(1);
            } else {
                self.blocks.add_reference(block);
                self.unlink(std::mem::replace(&mut run, ListSpan::of(block)));
            }
            blocks = rest;
        }
    }

    #[cold]
    fn touch_observed(&mut self, block: BlockId) {
        self.touch_runs(&[block]);
        if block != NULL_BLOCK {
            self.note(|| Observation::Touched(block));
        }
    }

    /// Takes blocks that stand side by side out of the queue that they are in.
    pub(crate) fn unlink(&mut self, run: ListSpan) {
        let list = match run.first().is_some_and(|block| self.blocks.is_pinned(block)) {
            true => &mut self.pinned,
            false => &mut self.free,
        };
        list.remove_run(&mut self.blocks, &run);
    }

    /// Adds a reference to a block that somebody holds, for one more who needs it for a while.
    pub fn hold(&mut self, block: BlockId) {
        self.blocks.add_reference(block);
    }

    /// Whether a block has one holder, who may write to it: nobody else reads or hits it.
    pub fn is_writable(&self, block: BlockId) -> bool {
        block != NULL_BLOCK && self.blocks.ref_count(block) == 1 && !self.blocks.is_cached(block)
    }

    /// Drops a reference to each block. Those that lose their last one become free, in the order
    /// given: the first is recycled first.
    pub fn release(&mut self, blocks: &[BlockId]) {
        match self.adaptive {
            None => self.release_in_order(blocks),
            Some(_) => self.release_graded(blocks.iter().copied()),
        }
    }

    /// As [`Self::release`], the last block first, and null blocks passed over.
    pub fn release_table(&mut self, table: &[BlockId]) {
        if self.adaptive.is_some() {
            let held = table.iter().rev().copied().filter(|&block| block != NULL_BLOCK);
            return self.release_graded(held);
        }
        let mut turned = [NULL_BLOCK; READ_AT_ONCE];
        let (mut front, mut back) = (self.free.front_run(&self.blocks), BackRun::default());
        let mut parts = prefetch_ahead(self.blocks.records(), table.rchunks(READ_AT_ONCE));
        while let Some(part) = parts.next(self.blocks.records()) {
            let num_held = turn(part, &mut turned);
            self.release_to_runs(&turned[..num_held], &mut front, &mut back);
        }
        self.free.close_runs(&mut self.blocks, front, back);
    }

    #[inline(never)]
    fn release_in_order(&mut self, blocks: &[BlockId]) {
        let (mut front, mut back) = (self.free.front_run(&self.blocks), BackRun::default());
        self.release_to_runs(blocks, &mut front, &mut back);
        self.free.close_runs(&mut self.blocks, front, back);
    }

    fn release_to_runs(&mut self, blocks: &[BlockId], front: &mut FrontRun, back: &mut BackRun) {
        if blocks.len() < IdRun::MIN_LEN {
            return self.release_piece(Ids::Scattered(blocks), front, back);
        }
        for piece in Runs::of(blocks, IdRun::MIN_LEN) {
            self.release_piece(piece, front, back);
        }
    }

    #[inline]
    fn release_piece(&mut self, mut piece: Ids<'_>, front: &mut FrontRun, back: &mut BackRun) {
        let (Ids::Run(mut blocks) | Ids::Scattered(mut blocks)) = piece;
        loop {
            let open = (self.recycle_order != RecycleOrder::Fifo).then_some(&mut *front);
            let num = self.free.drop_to_runs(&mut self.blocks, (open, back), piece);
            let Some((&block, rest)) = blocks[num..].split_first() else { break };
            self.release_other(block, front, back);
            (blocks, piece) = (rest, Ids::Scattered(rest));
        }
    }

    /// Drops a reference to a block of which more may be known than that it is cached or not.
    fn release_other(&mut self, block: BlockId, front: &mut FrontRun, back: &mut BackRun) {
        if block == NULL_BLOCK {
            self.release_null(1);
        } else if self.blocks.drop_reference(block) != Dropped::Held {
            self.recycle(block, front, back);
        }
    }

    fn recycle(&mut self, block: BlockId, front: &mut FrontRun, back: &mut BackRun) {
        if self.blocks.is_pinned(block) {
            self.pinned.push_back(&mut self.blocks, block);
        } else if self.blocks.is_cached(block) || self.recycle_order == RecycleOrder::Fifo {
            self.free.push_to_back_run(&mut self.blocks, back, block);
        } else {
            self.free.push_to_front_run(&mut self.blocks, front, block);
        }
    }

    /// Drops a reference to each block and puts those that lose their last one at the end of the
    /// free queue, cached or not (vLLM's `unpin_blocks`).
    pub fn release_to_back(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for block in blocks {
            if self.blocks.drop_reference(block) != Dropped::Held {
                self.blocks.set_pinned(block, false);
                self.free.push_back(&mut self.blocks, block);
            }
        }
    }

    /// Flags cached blocks for the pinned tier (vLLM PR 40676).
    pub fn pin(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for block in blocks {
            if self.blocks.is_cached(block) {
                self.blocks.set_pinned(block, true);
            }
        }
    }

    /// Takes blocks out of the prefix cache, whoever holds them.
    pub fn evict(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for block in blocks {
            self.note(|| Observation::Evicted(block));
            self.remove_keys(block);
            if self.blocks.is_pinned(block) {
                self.unpin(block);
            }
            self.delist(block);
        }
    }

    /// A block without a hash has no place in the pinned tier.
    fn unpin(&mut self, block: BlockId) {
        self.blocks.set_pinned(block, false);
        if self.blocks.ref_count(block) == 0 {
            self.pinned.remove(&mut self.blocks, block);
            self.requeue(block);
        }
    }

    /// Puts a free block that lost its hash into the queue.
    pub(crate) fn requeue(&mut self, block: BlockId) {
        let (mut front, mut back) = (self.free.front_run(&self.blocks), BackRun::default());
        self.recycle(block, &mut front, &mut back);
        self.free.close_runs(&mut self.blocks, front, back);
    }
}

/// Lists blocks last first, without null blocks; how many.
fn turn(blocks: &[BlockId], turned: &mut [BlockId]) -> usize {
    if blocks.iter().fold(true, |all, &block| all & (block != NULL_BLOCK)) {
        turned.iter_mut().zip(blocks.iter().rev()).for_each(|(to, &block)| *to = block);
        return blocks.len();
    }
    let held = blocks.iter().rev().filter(|&&block| block != NULL_BLOCK);
    turned.iter_mut().zip(held).map(|(to, &block)| *to = block).count()
}
