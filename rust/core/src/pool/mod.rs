//! The block pool: who holds which block, which keys find it, and in which order free blocks are
//! recycled.
//!
//! Between calls: every block but the null block is in use (it has references), in the free queue
//! or in the pinned tier, never in two of them; the index finds exactly the keys that blocks have;
//! pinned blocks are cached.

use crate::block::{BlockId, BlockStates, Dropped, MAX_REFERENCES, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::extra_keys::ExtraKeys;
use crate::free_queue::{BackRun, BlockList, FrontRun, Run};
use crate::hash_index::{HashIndex, Place};
use crate::key_layout::KeyLayout;
use crate::policy::{Policy, RecycleOrder};
use crate::removal_log::RemovalLog;
use crate::request::GroupBlocks;

mod keys;

pub use keys::FullBlocks;

/// Blocks shared by every KV cache group of a model.
#[derive(Debug)]
pub struct BlockPool {
    pub(crate) states: BlockStates,
    pub(crate) free: BlockList,
    pub(crate) pinned: BlockList,
    pub(crate) layout: KeyLayout,
    pub(crate) index: HashIndex,
    pub(crate) extra_keys: ExtraKeys,
    pub(crate) num_cached: usize,
    recycle_order: RecycleOrder,
    events: Option<Vec<Event>>,
    observations: Option<Vec<Observation>>,
    null_references: Option<i32>,
    evictions: u64,
    version: u64,
    removals: RemovalLog,
}

/// What befalls a block, for a collector of residency metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// So many blocks are taken from the free queue, as the next observations tell.
    Taking(usize),
    /// Taken from the free queue.
    Taken(BlockId),
    /// Given one more reference by a hit.
    Touched(BlockId),
    /// Taken out of the prefix cache on request.
    Evicted(BlockId),
}

/// The most blocks a pool can have; ids above name further keys of blocks in the index.
pub const MAX_BLOCKS: usize = 1 << 31;

impl BlockPool {
    /// A pool of `num_blocks` blocks, the null block included, for keys of `num_groups` groups.
    pub fn new(
        num_blocks: usize,
        num_groups: usize,
        policy: &Policy,
        with_events: bool,
    ) -> Result<Self> {
        if !(1..MAX_BLOCKS).contains(&num_blocks) {
            return Err(Error::Config(format!(
                "num_blocks is {num_blocks}; it must be from 1 to {}",
                MAX_BLOCKS - 1
            )));
        }
        let layout = KeyLayout::new(num_groups);
        let mut states = BlockStates::new(num_blocks, layout);
        let (free, pinned) = states.lists();
        Ok(Self {
            states,
            free,
            pinned,
            index: HashIndex::with_capacity(num_blocks, layout),
            layout,
            extra_keys: ExtraKeys::default(),
            num_cached: 0,
            recycle_order: policy.recycle_order,
            events: with_events.then(Vec::new),
            observations: None,
            null_references: None,
            evictions: 0,
            version: 0,
            removals: RemovalLog::default(),
        })
    }

    /// Starts to keep observations.
    pub fn observe(&mut self) {
        self.observations.get_or_insert_default();
    }

    /// The observations since the last call.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        self.observations.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Starts to count references to the null block too, as vLLM did before 0.33.0: from 0 on and
    /// below it, since most of those that are given back were never taken.
    pub fn count_null_references(&mut self) {
        self.null_references.get_or_insert_default();
    }

    /// Whether references to the null block are counted.
    pub fn counts_null_references(&self) -> bool {
        self.null_references.is_some()
    }

    /// References to a block: those to the null block are 0 unless they are counted.
    pub fn ref_count(&self, block: BlockId) -> i32 {
        match (block, self.null_references) {
            (NULL_BLOCK, Some(count)) => count,
            _ => self.states.ref_count(block) as i32,
        }
    }

    /// Notes that a hit has `n` null blocks.
    pub fn touch_null(&mut self, n: usize) {
        if let Some(count) = &mut self.null_references {
            *count = count.wrapping_add(n as i32);
            (0..n).for_each(|_| self.note(|| Observation::Touched(NULL_BLOCK)));
        }
    }

    /// Notes that a table that is given back has `n` null blocks.
    pub fn release_null(&mut self, n: usize) {
        if let Some(count) = &mut self.null_references {
            *count = count.wrapping_sub(n as i32);
        }
    }

    fn note(&mut self, observation: impl FnOnce() -> Observation) {
        if let Some(observations) = &mut self.observations {
            observations.push(observation());
        }
    }

    /// Number of blocks, the null block included.
    pub fn num_blocks(&self) -> usize {
        self.states.len()
    }

    /// Blocks that can be taken: free and pinned ones.
    pub fn num_free_blocks(&self) -> usize {
        self.free.len() + self.pinned.len()
    }

    /// Whether nobody uses a block.
    pub fn is_free(&self, block: BlockId) -> bool {
        self.states.ref_count(block) == 0
    }

    /// Blocks in the pinned tier.
    pub fn num_pinned_blocks(&self) -> usize {
        self.pinned.len()
    }

    /// Blocks with at least one key.
    pub fn num_cached_blocks(&self) -> usize {
        self.num_cached
    }

    /// Share of the pool in use, from 0 to 1. The null block does not count.
    pub fn usage(&self) -> f64 {
        let total = self.num_blocks() - 1;
        if total == 0 {
            return 0.0;
        }
        1.0 - self.num_free_blocks() as f64 / total as f64
    }

    /// Cached blocks that lost their keys to reuse since the pool was made.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Changes whenever a key enters or leaves the index: equal versions answer every look-up
    /// equally.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Starts or stops to keep which keys leave the index.
    pub fn keep_removals(&mut self, on: bool) {
        self.removals.keep(on);
    }

    /// Which keys left the index.
    pub fn removal_log(&self) -> &RemovalLog {
        &self.removals
    }

    /// What is known of each block.
    pub fn states(&self) -> &BlockStates {
        &self.states
    }

    /// Those of some blocks that hold KV and are not cached.
    pub fn unhashed(&self, blocks: &GroupBlocks) -> Vec<BlockId> {
        let held = blocks.tail().iter().copied().filter(|&id| id != NULL_BLOCK);
        held.filter(|&id| !self.states.is_cached(id)).collect()
    }

    /// The free queue, front first.
    pub fn free_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.free.iter(&self.states)
    }

    /// The pinned tier, oldest first.
    pub fn pinned_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.pinned.iter(&self.states)
    }

    /// Checks that `n` blocks can be taken.
    pub fn check_free(&self, n: usize) -> Result<()> {
        if n <= self.num_free_blocks() {
            return Ok(());
        }
        Err(Error::Block(format!(
            "cannot take {n} blocks: only {} of the pool's {} are free",
            self.num_free_blocks(),
            self.num_blocks()
        )))
    }

    /// Takes `n` blocks from the front of the free queue to the end of `out`, evicting what they
    /// cached. The caller has checked that so many are free.
    pub fn take(&mut self, n: usize, out: &mut Vec<BlockId>) {
        if n > self.free.len() {
            self.demote_n(n - self.free.len());
        }
        let first = out.len();
        self.free.take_front(&mut self.states, n, out);
        self.note(|| Observation::Taking(n));
        out[first..].chunks(HashIndex::BATCH).for_each(|batch| self.reuse_batch(batch));
    }

    fn reuse_batch(&mut self, batch: &[BlockId]) {
        batch.iter().for_each(|&block| self.note(|| Observation::Taken(block)));
        let mut cached = [(NULL_BLOCK, Place::default()); HashIndex::BATCH];
        let mut num_cached = 0;
        for &block in batch {
            if self.states.take_uncached(block) {
                continue;
            }
            cached[num_cached] = (block, self.index.place(self.states.fingerprint(block)));
            num_cached += 1;
        }
        let cached = &cached[..num_cached];
        self.index.warm_up(cached.iter().map(|&(_, key)| key));
        let mut next = 0;
        while let Some(i) = self.evict_simple_ones(&cached[next..]) {
            self.reuse(cached[next + i].0);
            next += i + 1;
        }
    }

    /// Reuses cached blocks up to one of which more than its own key has to change, or whose reuse
    /// somebody wants to know of: the position of that one.
    fn evict_simple_ones(&mut self, cached: &[(BlockId, Place)]) -> Option<usize> {
        let is_watched = self.is_watched();
        let mut index = self.index.simple_changes();
        let stop = cached.iter().position(|&(block, key)| {
            let is_simple = !is_watched && self.states.is_plain(block);
            !(is_simple && index.remove(key, block) && self.states.take_plain(block))
        });
        let num_evicted = stop.unwrap_or(cached.len());
        self.evictions += num_evicted as u64;
        self.version += num_evicted as u64;
        self.num_cached -= num_evicted;
        stop
    }

    fn reuse(&mut self, block: BlockId) {
        if self.states.take_plain(block) {
            self.forget_plain_key(block);
        } else {
            self.states.set_ref_count(block, 1);
            self.remove_keys(block);
        }
        self.evictions += 1;
    }

    /// Moves the `n` oldest pinned blocks to the end of the free queue (vLLM PR 40676). They keep
    /// their hash until they are reused.
    pub fn demote_n(&mut self, n: usize) {
        let mut demoted = Vec::with_capacity(n);
        self.pinned.take_front(&mut self.states, n.min(self.pinned.len()), &mut demoted);
        for block in demoted {
            self.states.set_pinned(block, false);
            self.free.push_back(&mut self.states, block);
        }
    }

    /// Adds a reference to each block; a free block leaves its queue.
    pub fn touch(&mut self, blocks: &[BlockId]) {
        let mut run = Run::default();
        for batch in blocks.chunks(BlockStates::BATCH) {
            self.states.warm_up(batch);
            run = self.touch_batch(batch, run);
        }
        self.unlink(run);
    }

    /// `run` are touched blocks that stand side by side in their queue and still have to leave it.
    fn touch_batch(&mut self, batch: &[BlockId], mut run: Run) -> Run {
        for &block in batch {
            if block == NULL_BLOCK {
                self.touch_null(1);
                continue;
            }
            let count = self.states.add_reference(block);
            if count == 1 && !run.grow(&self.states, block) {
                self.unlink(std::mem::replace(&mut run, Run::of(block)));
            }
            self.note(|| Observation::Touched(block));
        }
        run
    }

    /// Takes blocks that stand side by side out of the queue that they are in.
    fn unlink(&mut self, run: Run) {
        let list = match run.first().is_some_and(|block| self.states.is_pinned(block)) {
            true => &mut self.pinned,
            false => &mut self.free,
        };
        list.remove_run(&mut self.states, &run);
    }

    /// Drops a reference to each block. Those that lose their last one become free, in the order
    /// given: the first is recycled first.
    pub fn release(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        let is_uncached_first = self.recycle_order != RecycleOrder::Fifo;
        let mut front = self.free.front_run(&self.states);
        let mut back = BackRun::default();
        for block in blocks {
            if block == NULL_BLOCK {
                self.release_null(1);
                continue;
            }
            match self.states.drop_reference(block) {
                Dropped::Held => {}
                Dropped::Cached => self.free.push_to_back_run(&mut self.states, &mut back, block),
                Dropped::Uncached if is_uncached_first => {
                    self.free.push_to_front_run(&mut self.states, &mut front, block);
                }
                Dropped::Uncached | Dropped::Other => self.recycle(block, &mut front, &mut back),
            }
        }
        self.free.close_runs(&mut self.states, front, back);
    }

    fn recycle(&mut self, block: BlockId, front: &mut FrontRun, back: &mut BackRun) {
        if self.states.is_pinned(block) {
            self.pinned.push_back(&mut self.states, block);
        } else if self.states.is_cached(block) || self.recycle_order == RecycleOrder::Fifo {
            self.free.push_to_back_run(&mut self.states, back, block);
        } else {
            self.free.push_to_front_run(&mut self.states, front, block);
        }
    }

    /// Drops a reference to each block and puts those that lose their last one at the end of the
    /// free queue, cached or not (vLLM's `unpin_blocks`).
    pub fn release_to_back(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for block in blocks {
            if self.states.drop_reference(block) != Dropped::Held {
                self.states.set_pinned(block, false);
                self.free.push_back(&mut self.states, block);
            }
        }
    }

    /// Flags cached blocks for the pinned tier (vLLM PR 40676).
    pub fn pin(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for block in blocks {
            if self.states.is_cached(block) {
                self.states.set_pinned(block, true);
            }
        }
    }

    /// Takes blocks out of the prefix cache, whoever holds them.
    pub fn evict(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for block in blocks {
            self.note(|| Observation::Evicted(block));
            self.remove_keys(block);
            if self.states.is_pinned(block) {
                self.unpin(block);
            }
        }
    }

    /// A block without a hash has no place in the pinned tier.
    fn unpin(&mut self, block: BlockId) {
        self.states.set_pinned(block, false);
        if self.states.ref_count(block) == 0 {
            self.pinned.remove(&mut self.states, block);
            let (mut front, mut back) = (self.free.front_run(&self.states), BackRun::default());
            self.recycle(block, &mut front, &mut back);
            self.free.close_runs(&mut self.states, front, back);
        }
    }

    /// Forgets every key. Refused, with `false`, while any block is in use.
    pub fn reset(&mut self) -> bool {
        if self.num_free_blocks() + 1 != self.num_blocks() {
            return false;
        }
        self.demote_n(self.pinned.len());
        self.index.clear();
        for block in 0..self.num_blocks() as BlockId {
            self.states.clear_key(block);
            self.states.set_has_extra_keys(block, false);
        }
        self.extra_keys = ExtraKeys::default();
        self.num_cached = 0;
        self.version += 1;
        self.removals.restart();
        self.push_event(|| Event::Cleared);
        true
    }

    /// Sets a reference count and nothing else: the block stays in its queue or out of it.
    pub fn set_ref_count(&mut self, block: BlockId, count: u32) -> Result<()> {
        if count > MAX_REFERENCES {
            return Err(Error::Block(format!(
                "a block cannot have {count} references; at most {MAX_REFERENCES}"
            )));
        }
        match (block, &mut self.null_references) {
            (NULL_BLOCK, Some(references)) => *references = count as i32,
            _ => self.states.set_ref_count(block, count),
        }
        Ok(())
    }

    /// The blocks before and after a free block in its queue.
    pub fn free_neighbours(&self, block: BlockId) -> (Option<BlockId>, Option<BlockId>) {
        if block == NULL_BLOCK || self.states.ref_count(block) > 0 {
            return (None, None);
        }
        self.states.neighbours(block)
    }

    /// Whether events are wanted.
    pub fn has_events(&self) -> bool {
        self.events.is_some()
    }

    /// Events that have not been handed out.
    pub fn num_events(&self) -> usize {
        self.events.as_ref().map_or(0, Vec::len)
    }

    /// Adds an event if they are wanted.
    pub fn push_event(&mut self, event: impl FnOnce() -> Event) {
        if let Some(events) = &mut self.events {
            events.push(event());
        }
    }

    /// Hands out the events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
