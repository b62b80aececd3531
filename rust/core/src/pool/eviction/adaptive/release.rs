//! Blocks are released: cached ones enter their lists, those of one list together.

use super::Adaptive;
use super::block_meta::{BlockMeta, ListKey, TargetList};
use super::shadow::access_log::Access;
use super::shadow::table::ShadowKey;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::Blocks;
use crate::pool::blocks::OpenEnds;
use crate::pool::blocks::{IdRun, Part, Parts};
use crate::pool::eviction::adaptive::value::ValueLevel;

/// Blocks that are being released, one after the other.
#[derive(Debug)]
pub struct Release<'a> {
    blocks: &'a mut Blocks,
    adaptive: &'a mut Adaptive,
    /// Uncached blocks go to the front of the free queue, worthless ones to its back.
    queue_ends: OpenEnds,
    open: OpenList,
}

/// The ranked list that the last blocks entered. They are linked to it, and it to them as soon as it
/// is closed.
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
    /// Drops a reference to each block. Null blocks are passed over.
    #[cold]
    #[inline(never)]
    pub fn release(&mut self, blocks: &mut Blocks, ids: &[BlockId]) {
        self.raise_priorities(blocks, ids.iter().copied());
        self.release_by(blocks, |release| {
            if ids.len() < IdRun::MIN_LEN {
                return ids.iter().for_each(|&block| _ = release.release(block));
            }
            for part in Parts::of(ids, IdRun::MIN_LEN) {
                match part {
                    Part::Run(run) => release.release_mixed_run(run),
                    Part::Scattered(ids) => release.release_mixed(ids),
                }
            }
        });
    }

    /// Does what [`Self::release`] does, the last block first.
    #[cold]
    #[inline(never)]
    pub(crate) fn release_table(&mut self, blocks: &mut Blocks, table: &[BlockId]) {
        self.raise_priorities(blocks, table.iter().rev().copied());
        self.release_by(blocks, |release| release.release_all(table));
    }

    /// Releases blocks, and ends the protection of tails, in the order of the calls in `release`.
    #[inline]
    pub fn release_by(&mut self, blocks: &mut Blocks, release: impl FnOnce(&mut Release<'_>)) {
        let queue_ends = self.queue.free.open(blocks);
        let mut open = Release { blocks, adaptive: self, queue_ends, open: OpenList::default() };
        release(&mut open);
        open.close();
    }
}

impl Release<'_> {
    /// Blocks of a run that are looked at side by side.
    const PART: usize = 32;

    /// Drops a reference to a block. Returns whether the block is cached if it is free now.
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
            true => self.enqueue(block),
            false => self.queue_ends.push_front(self.blocks, block),
        }
        Some(is_cached)
    }

    /// Drops a reference to each block, the last of them first.
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

    /// Does what [`Self::release_all`] does, for blocks of which hardly any are a run.
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

    /// Releases a run at once, or after the first block that is released, since that may open the
    /// list for the others.
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

    /// Drops a reference to each block of a run if all are in use still, or all become free and enter
    /// the open list. Returns whether it did.
    fn release_run_to_open(&mut self, run: IdRun) -> bool {
        let target = self.open.target;
        let Some(mut metas) = self.adaptive.metas.run_accepted(run, target) else { return false };
        let mut ends = OpenEnds::back_of(self.open.last);
        if !self.blocks.release_run(run, false, &mut ends) {
            return false;
        }
        if ends.num_added > 0 {
            metas.enter(target);
            self.open.num_ranked += ends.num_added;
            self.open.last = ends.back;
            let access = Access::Freed(target.class() as u8);
            self.open.num_sampled += self.adaptive.log_run(self.blocks, run, access);
        }
        true
    }

    /// Drops a reference to each block of a run, of which most are worthless.
    fn release_mixed_run(&mut self, run: &[BlockId]) {
        for ids in run.chunks(Self::PART) {
            if ids.len() < IdRun::MIN_LEN || !self.release_run_to_queue(IdRun::of(ids)) {
                self.release_mixed(ids);
            }
        }
    }

    /// Drops a reference to each block, of which most are worthless.
    fn release_mixed(&mut self, mut ids: &[BlockId]) {
        loop {
            let mut num = 0;
            if self.queue_ends.is_front_apart() {
                let worthless = &ids[..self.adaptive.metas.num_worthless(ids)];
                num = self.blocks.release_each(worthless, true, &mut self.queue_ends);
            }
            let Some((&block, rest)) = ids[num..].split_first() else { return };
            self.release(block);
            ids = rest;
        }
    }

    /// Drops a reference to each block of a run if all are in use still, or all become free and are
    /// uncached or worthless. Returns whether it did.
    fn release_run_to_queue(&mut self, run: IdRun) -> bool {
        let is_cached = self.blocks.is_cached(run.first);
        if is_cached && !self.adaptive.metas.is_run_worthless(run) {
            return false;
        }
        let uncached_first = self.queue_ends.is_front_apart();
        self.blocks.release_run(run, uncached_first, &mut self.queue_ends)
    }

    /// Drops a reference to each block, the last of them first, up to one that does not become free
    /// and enter the open list. Returns how many are left, always the first of all.
    #[inline]
    fn release_to_open(&mut self, ids: &[BlockId]) -> usize {
        let (target, mut last, mut num_sampled) = (self.open.target, self.open.last, 0);
        let Adaptive { metas, log, shadow, .. } = &mut *self.adaptive;
        let metas = metas.all_mut();
        log.begin(shadow, Access::Freed(target.class() as u8));
        let mut records = self.blocks.writer_of_first(metas.len());
        let stop = ids.windows(2).rposition(|pair| {
            // Its link to the next is written as if that entered too, and is mended if it does not.
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
                log.push(shadow, ShadowKey::of(records.fingerprint(block)));
            }
            false
        });
        let num_left = stop.map_or(1, |pair| pair + 2).min(ids.len());
        let num_ranked = ids.len() - num_left;
        if num_ranked > 0 {
            self.blocks.append(self.open.last, ids[ids.len() - 1]);
            self.open.last = last;
            self.open.num_ranked += num_ranked;
            self.open.num_sampled += num_sampled;
        }
        num_left
    }

    /// A tail is not protected any more.
    #[inline(never)]
    pub fn unprotect(&mut self, tail: BlockId) {
        self.adaptive.protected.remove(self.blocks, tail);
        self.enqueue(tail);
    }

    /// A tail is not protected any more, and has another value.
    pub fn unprotect_as(&mut self, tail: BlockId, value: ValueLevel) {
        self.adaptive.metas.update(tail, |meta| meta.with_value(value));
        self.unprotect(tail);
    }

    /// Puts a free cached block into its list. Until [`Self::close`], nothing else may touch the
    /// ranked lists.
    #[inline]
    pub(super) fn enqueue(&mut self, block: BlockId) {
        let entered = self.adaptive.metas.enter(block, self.open.target);
        let Some(was) = entered.or_else(|| self.open_list_for(block)) else { return };
        self.blocks.append(self.open.last, block);
        self.open.last = block;
        self.open.num_ranked += 1;
        if was.is_sampled() {
            self.open.num_sampled += 1;
            let Adaptive { log, shadow, .. } = &mut *self.adaptive;
            let access = Access::Freed(self.open.target.class() as u8);
            log.record(shadow, access, ShadowKey::of(self.blocks.fingerprint(block)));
        }
    }

    /// Opens the ranked list that a block enters. Returns none if the block enters the list of its
    /// priority, or is protected.
    #[inline(never)]
    fn open_list_for(&mut self, block: BlockId) -> Option<BlockMeta> {
        if self.adaptive.metas[block].has_priority() {
            self.close_list();
            if self.adaptive.enter_priority_list(self.blocks, block) {
                return None;
            }
        }
        let key = self.adaptive.metas[block].list_key();
        if key.is_worthless() {
            self.adaptive.metas.update(block, BlockMeta::removed);
            self.queue_ends.push_back(self.blocks, block);
            return None;
        }
        self.close_list();
        let Self { blocks, adaptive, .. } = self;
        if key.is_protectable()
            && let Some(newly_protected) = &mut adaptive.newly_protected
        {
            newly_protected.push(block);
            adaptive.metas.update(block, BlockMeta::protected);
            adaptive.protected.push_back(blocks, block);
            return None;
        }
        self.open = adaptive.open_list(blocks, key);
        adaptive.metas.enter(block, self.open.target)
    }

    fn close(mut self) {
        self.close_list();
        let Self { blocks, adaptive, queue_ends, .. } = self;
        adaptive.log.flush(&mut adaptive.shadow);
        adaptive.queue.free.close(blocks, &queue_ends);
        adaptive.fit_shadow_caches();
    }

    fn close_list(&mut self) {
        let closed = std::mem::take(&mut self.open);
        if closed.num_ranked > 0 {
            self.blocks.append(closed.last, closed.sentinel);
            self.adaptive.num_ranked += closed.num_ranked;
            self.adaptive.num_sampled += closed.num_sampled;
        }
    }
}

impl Adaptive {
    fn open_list(&mut self, blocks: &Blocks, key: ListKey) -> OpenList {
        let sentinel = self.lists.open(key.class(), key.value());
        let are_tails_apart = self.newly_protected.is_some();
        let target = TargetList::new(key, self.lists.epoch(), are_tails_apart);
        let last = blocks.last_of_ring(sentinel);
        OpenList { target, sentinel, last, ..OpenList::default() }
    }
}
