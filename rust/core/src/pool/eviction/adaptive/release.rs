//! Releases blocks. Cached blocks enter their lists; blocks that enter the same list are handled
//! together.

use super::Adaptive;
use super::block_meta::{BlockMeta, TargetList, bit};
use super::shadow::Access;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::{Blocks, IdRun, OpenEnds, Part, Parts};

/// A release of blocks, one after the other.
#[derive(Debug)]
pub struct Release<'a> {
    blocks: &'a mut Blocks,
    adaptive: &'a mut Adaptive,
    /// The open ends of the free queue. Uncached blocks go to its front, worthless ones to its
    /// back.
    queue_ends: OpenEnds,
    open_list: OpenList,
}

/// The ranked list that the last blocks entered. The blocks have links to the list. The list gets
/// its link to them when it is closed.
#[derive(Clone, Copy, Debug)]
struct OpenList {
    target: TargetList,
    sentinel: u32,
    last: u32,
    num_ranked: usize,
    num_sampled: usize,
}

impl Default for OpenList {
    fn default() -> Self {
        Self { target: TargetList::NONE, sentinel: 0, last: 0, num_ranked: 0, num_sampled: 0 }
    }
}

impl Adaptive {
    /// Drops a reference to each block. Null blocks are skipped.
    #[cold]
    #[inline(never)]
    pub fn release(&mut self, blocks: &mut Blocks, ids: &[BlockId]) {
        // A single block needs no copy. Most decode steps release at most one block.
        if ids.len() < 2 {
            return self.release_table(blocks, ids);
        }
        let reversed: Vec<_> = ids.iter().rev().copied().collect();
        self.release_table(blocks, &reversed);
    }

    /// Releases the blocks like [`Self::release`], but the last block first.
    #[cold]
    #[inline(never)]
    pub(crate) fn release_table(&mut self, blocks: &mut Blocks, table: &[BlockId]) {
        self.raise_priorities(blocks, table.iter().rev().copied());
        self.release_by(blocks, |release| release.release_all(table));
    }

    /// Releases blocks and ends the protection of tails, in the order in which `calls` asks for it.
    #[inline]
    pub fn release_by(&mut self, blocks: &mut Blocks, calls: impl FnOnce(&mut Release<'_>)) {
        let queue_ends = self.queue.free.open(blocks);
        let open_list = OpenList::default();
        let mut release = Release { blocks, adaptive: self, queue_ends, open_list };
        calls(&mut release);
        release.close();
    }
}

impl Release<'_> {
    /// Drops a reference to a block. Returns whether the block is cached, or `None` if it is still
    /// in use.
    #[inline(always)]
    pub fn release(&mut self, block: BlockId) -> Option<bool> {
        if block == NULL_BLOCK {
            return None;
        }
        if !self.blocks.remove_reference(block) {
            return None;
        }
        let is_cached = self.blocks.is_cached(block);
        match is_cached {
            true => self.enter_list(block),
            false => self.queue_ends.push_front(self.blocks, block),
        }
        Some(is_cached)
    }

    /// Drops a reference to each block, the last block first.
    pub fn release_all(&mut self, ids: &[BlockId]) {
        if ids.len() < IdRun::MIN_LEN {
            return self.release_each(ids);
        }
        let mut parts = Vec::with_capacity(2 * ids.len() / IdRun::MIN_LEN + 1);
        parts.extend(Parts::of(ids, IdRun::MIN_LEN));
        for part in parts.into_iter().rev() {
            match part {
                Part::Run(run) => self.release_run(run),
                Part::Scattered(ids) => self.release_each(ids),
            }
        }
    }

    /// Releases blocks like [`Self::release_all`], for blocks that contain hardly any runs.
    fn release_each(&mut self, mut ids: &[BlockId]) {
        while let Some((&block, before)) = ids.split_last() {
            let num_left = match self.release(block) {
                None => before.len(),
                Some(true) => self.release_to_open(before),
                Some(false) => self.blocks.release_uncached_to(before, &mut self.queue_ends),
            };
            ids = &before[..num_left];
        }
    }

    /// Releases a run at once. If its blocks do not enter the open list, the first block is
    /// released alone, which may open their list. Then the other blocks are released at once.
    fn release_run(&mut self, ids: &[BlockId]) {
        let [others @ .., first] = ids else { return };
        let run = IdRun::of(ids).reversed();
        if !self.release_run_to_open(run) && !self.release_run_to_queue(run) {
            self.release(*first);
            if !self.release_run_to_open(IdRun::of(others).reversed()) {
                self.release_each(others);
            }
        }
    }

    /// Drops a reference to each block of a run, if all blocks stay in use, or all become free and
    /// enter the open list. Returns whether it did.
    fn release_run_to_open(&mut self, run: IdRun) -> bool {
        let target = self.open_list.target;
        let metas = self.adaptive.metas.run_alike(run, target.mask, target.bits);
        let Some(mut metas) = metas else { return false };
        let mut ends = OpenEnds::back_of(self.open_list.last);
        if !self.blocks.release_run(run, false, &mut ends) {
            return false;
        }
        if ends.num_added > 0 {
            metas.enter(target);
            self.open_list.num_ranked += ends.num_added;
            self.open_list.last = ends.back;
            let access = Access::Freed(target.class() as u8);
            let Adaptive { metas, shadow, .. } = &mut *self.adaptive;
            let num_sampled = shadow.record_run(access, self.blocks, &metas.sampled, run);
            self.open_list.num_sampled += num_sampled;
        }
        true
    }

    /// Drops a reference to each block of a run, if all blocks stay in use, or all become free and
    /// are uncached or worthless. Returns whether it did.
    fn release_run_to_queue(&mut self, run: IdRun) -> bool {
        let is_cached = self.blocks.is_cached(run.first);
        let mask = bit::VALUE | bit::HAS_PRIORITY;
        if is_cached && self.adaptive.metas.run_alike(run, mask, 0).is_none() {
            return false;
        }
        let uncached_first = self.queue_ends.is_front_apart();
        self.blocks.release_run(run, uncached_first, &mut self.queue_ends)
    }

    /// Drops a reference to each block, the last block first. Stops at a block that does not become
    /// free and enter the open list. Returns the number of remaining blocks, which are the first
    /// ones.
    #[inline]
    fn release_to_open(&mut self, ids: &[BlockId]) -> usize {
        let (target, mut last, mut num_sampled) = (self.open_list.target, self.open_list.last, 0);
        let Adaptive { metas, shadow, .. } = &mut *self.adaptive;
        let metas = metas.all_mut();
        shadow.begin(Access::Freed(target.class() as u8));
        let mut records = self.blocks.writer_of_first(metas.len());
        let stop = ids.windows(2).rposition(|pair| {
            // The link assumes that the next block enters too. If it does not, the next append
            // overwrites the link.
            let (block, next) = (pair[1], pair[0]);
            let meta = &mut metas[block as usize];
            let was = *meta;
            if !target.accepts(was) || !records.release_between(last, block, next) {
                return true;
            }
            *meta = was.entered(target);
            last = block;
            if was.is_sampled() {
                num_sampled += 1;
                shadow.push(records.fingerprint(block));
            }
            false
        });
        let num_left = stop.map_or(1, |pair| pair + 2).min(ids.len());
        let num_ranked = ids.len() - num_left;
        if num_ranked > 0 {
            self.blocks.append(self.open_list.last, ids[ids.len() - 1]);
            self.open_list.last = last;
            self.open_list.num_ranked += num_ranked;
            self.open_list.num_sampled += num_sampled;
        }
        num_left
    }

    /// Ends the protection of a tail.
    #[inline(never)]
    pub fn unprotect(&mut self, tail: BlockId) {
        self.adaptive.protected.remove(self.blocks, tail);
        self.enter_list(tail);
    }

    /// Puts a free cached block into its list. Until [`Self::close`], no other code may use the
    /// ranked lists.
    #[inline]
    pub(super) fn enter_list(&mut self, block: BlockId) {
        let entered = self.adaptive.metas.enter(block, self.open_list.target);
        let Some(was) = entered.or_else(|| self.open_list_for(block)) else { return };
        self.blocks.append(self.open_list.last, block);
        self.open_list.last = block;
        self.open_list.num_ranked += 1;
        if was.is_sampled() {
            self.open_list.num_sampled += 1;
            let access = Access::Freed(self.open_list.target.class() as u8);
            self.adaptive.shadow.record(access, self.blocks.fingerprint(block));
        }
    }

    /// Opens the ranked list that a block enters. Returns `None` if the block enters the list of
    /// its priority, or is protected.
    #[inline(never)]
    fn open_list_for(&mut self, block: BlockId) -> Option<BlockMeta> {
        if self.adaptive.metas[block].has_priority() {
            self.close_list();
            if self.adaptive.enter_priority_list(self.blocks, block) {
                return None;
            }
        }
        let meta = self.adaptive.metas[block];
        if meta.is_worthless() {
            self.adaptive.metas.update(block, BlockMeta::removed);
            self.queue_ends.push_back(self.blocks, block);
            return None;
        }
        self.close_list();
        let Self { blocks, adaptive, .. } = self;
        if meta.is_protectable()
            && let Some(newly_protected) = &mut adaptive.newly_protected
        {
            newly_protected.push(block);
            adaptive.metas.update(block, BlockMeta::protected);
            adaptive.protected.push_back(blocks, block);
            return None;
        }
        let sentinel = adaptive.lists.open(meta);
        let are_tails_apart = adaptive.newly_protected.is_some();
        let target = TargetList::new(meta, adaptive.lists.epoch(), are_tails_apart);
        let last = blocks.last_of_ring(sentinel);
        self.open_list = OpenList { target, sentinel, last, ..OpenList::default() };
        adaptive.metas.enter(block, self.open_list.target)
    }

    fn close(mut self) {
        self.close_list();
        let Self { blocks, adaptive, queue_ends, .. } = self;
        adaptive.shadow.flush();
        adaptive.queue.free.close(blocks, &queue_ends);
        adaptive.fit_shadow_caches();
    }

    fn close_list(&mut self) {
        let closed = std::mem::take(&mut self.open_list);
        if closed.num_ranked > 0 {
            self.blocks.append(closed.last, closed.sentinel);
            self.adaptive.num_ranked += closed.num_ranked;
            self.adaptive.num_sampled += closed.num_sampled;
        }
    }
}
