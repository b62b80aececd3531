//! The pool itself: blocks, index, eviction, and counts of them.

use super::answers::AnswerBlocks;
use super::blocks::{Blocks, FullBlocks, KeyLayout, MAX_REFERENCES};
use super::eviction::adaptive::{Adaptive, AdaptiveConfig};
use super::eviction::by_hand::ByHand;
use super::eviction::policy::EvictionPolicy;
use super::eviction::queue::{QueueEnd, RecycleOrder};
use super::eviction::{Eviction, EvictionHints};
use super::index::PrefixIndex;
use super::leaving::LeavingNotes;
use super::observation::Observation;
use crate::block::{BlockId, CacheKey, MAX_BLOCKS, NULL_BLOCK};
use crate::error::{Error, Result};

/// The blocks that all KV cache groups of a model share.
#[derive(Debug)]
pub struct BlockPool {
    pub(crate) blocks: Blocks,
    pub(crate) eviction: Eviction,
    pub(crate) index: PrefixIndex,
    observations: Option<Vec<Observation>>,
    /// The blocks with generated tokens, if outcomes of prompts are observed.
    pub(crate) answers: Option<Box<AnswerBlocks>>,
    null_references: Option<i32>,
    withheld: usize,
    pub(super) num_allocated: u64,
    pub(super) leaving_notes: Option<Box<LeavingNotes>>,
    pub(crate) by_hand: ByHand,
}

impl BlockPool {
    /// Creates a pool of `num_blocks` blocks, including the null block, for keys of `num_groups`
    /// groups. With a configuration of the adaptive policy, it evicts by that policy.
    pub fn new(
        num_blocks: usize,
        num_groups: usize,
        recycle_order: RecycleOrder,
        with_events: bool,
        adaptive: Option<AdaptiveConfig>,
    ) -> Result<Self> {
        if !(1..MAX_BLOCKS).contains(&num_blocks) {
            return Err(Error::Config(format!(
                "num_blocks is {num_blocks}; it must be from 1 to {}",
                MAX_BLOCKS - 1
            )));
        }
        let layout = KeyLayout::new(num_groups);
        let num_sentinels = adaptive.as_ref().map_or(0, |_| Adaptive::NUM_SENTINELS);
        let mut blocks = Blocks::new(num_blocks, layout, num_sentinels);
        let eviction = Eviction::new(&mut blocks, recycle_order, adaptive);
        Ok(Self {
            blocks,
            eviction,
            index: PrefixIndex::new(num_blocks, layout, with_events),
            observations: None,
            answers: None,
            null_references: None,
            withheld: 0,
            num_allocated: 0,
            leaving_notes: None,
            by_hand: ByHand::default(),
        })
    }

    /// Evicts by a policy that orders one block at a time, instead of the default one. Returns
    /// [`Error::Config`] if a block is cached already or adaptive retention is in force.
    pub fn evict_by(&mut self, policy: Box<dyn EvictionPolicy>) -> Result<()> {
        if self.index.num_keys() > 0 {
            return Err(Error::Config(
                "the pool already has cached blocks that the eviction policy does not know; set \
                 the policy on a new pool"
                    .into(),
            ));
        }
        self.eviction.evict_by(policy)
    }

    /// Starts to record observations.
    pub fn observe(&mut self) {
        self.observations.get_or_insert_default();
    }

    /// Returns the observations since the last call.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        self.observations.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Starts to note what outcomes of prompts depend on: the blocks with generated tokens, and up
    /// to `num_keys` keys that were evicted.
    pub(crate) fn observe_outcomes(&mut self, num_keys: usize) {
        self.index.remember_evicted(num_keys);
        let num_blocks = self.blocks.len();
        self.answers.get_or_insert_with(|| Box::new(AnswerBlocks::new(num_blocks)));
    }

    /// Remembers every key of blocks that are about to be evicted by id.
    pub(crate) fn remember_keys(&mut self, blocks: &[BlockId]) {
        blocks.iter().for_each(|&block| self.index.remember_keys(&self.blocks, block));
    }

    /// Notes that full blocks were cached for a prompt of `num_prompt_tokens` tokens.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_answers(&mut self, cached: &FullBlocks<'_>, num_prompt_tokens: usize) {
        if let Some(answers) = &mut self.answers {
            answers.note(cached, num_prompt_tokens);
        }
    }

    pub(crate) fn note(&mut self, observation: impl FnOnce() -> Observation) {
        if let Some(observations) = &mut self.observations {
            observations.push(observation());
        }
    }

    /// Returns the number of blocks, including the null block.
    pub fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the prefix index.
    pub fn index(&self) -> &PrefixIndex {
        &self.index
    }

    /// Returns the prefix index, for changes.
    pub fn index_mut(&mut self) -> &mut PrefixIndex {
        &mut self.index
    }

    /// Returns the records of all blocks.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Returns the blocks that are being moved by hand.
    #[inline]
    pub fn by_hand(&self) -> &ByHand {
        &self.by_hand
    }

    /// Returns the adaptive policy, if the pool uses it.
    pub fn adaptive(&self) -> Option<&Adaptive> {
        self.eviction.adaptive()
    }

    /// Returns the adaptive policy, if the pool uses it, and the blocks that it orders.
    #[inline]
    pub fn adaptive_mut(&mut self) -> Option<(&mut Adaptive, &mut Blocks)> {
        Some((self.eviction.adaptive_mut()?, &mut self.blocks))
    }

    /// Returns how many blocks can be allocated: the number of free blocks minus the withheld ones.
    /// It is negative after a hit on blocks while all were withheld.
    pub fn num_free_blocks(&self) -> isize {
        self.eviction.num_free() as isize - self.withheld as isize
    }

    /// Withholds all but `n` free blocks until the next call. Fails if fewer are free.
    pub fn set_num_free_blocks(&mut self, n: usize) -> Result<()> {
        let num_free = self.eviction.num_free();
        self.withheld = num_free.checked_sub(n).ok_or_else(|| {
            Error::Block(format!("num_free_blocks cannot be {n}; only {num_free} blocks are free"))
        })?;
        Ok(())
    }

    /// Checks that `n` blocks can be allocated.
    pub fn check_free(&self, n: usize) -> Result<()> {
        if !self.by_hand.is_empty() {
            self.by_hand.check_has_none(self.blocks.free_from(self.blocks.first_free()).take(n))?;
        }
        if isize::try_from(n).is_ok_and(|n| n <= self.num_free_blocks()) {
            return Ok(());
        }
        Err(Error::Block(format!(
            "cannot take {n} blocks: only {} of the pool's {} are free",
            self.num_free_blocks(),
            self.num_blocks()
        )))
    }

    /// Returns the share of the pool in use, from 0 to 1, without the null block.
    pub fn usage(&self) -> f64 {
        let total = self.num_blocks() - 1;
        if total == 0 {
            return 0.0;
        }
        1.0 - self.num_free_blocks() as f64 / total as f64
    }

    /// Returns the number of references to a block. For the null block this is 0 unless its
    /// references are counted.
    pub fn ref_count(&self, block: BlockId) -> i32 {
        match (block, self.null_references) {
            (NULL_BLOCK, Some(count)) => count,
            _ if self.by_hand.is_empty() => self.blocks.ref_count(block) as i32,
            _ => {
                let by_hand = self.by_hand.count(block);
                by_hand.unwrap_or_else(|| self.blocks.ref_count(block)) as i32
            }
        }
    }

    /// Starts to count references to the null block, as older releases of vLLM do. The count starts at
    /// 0 and can become negative, because vLLM drops references that it never added.
    pub fn count_null_references(&mut self) {
        self.null_references.get_or_insert_default();
    }

    /// Returns whether references to the null block are counted.
    pub fn counts_null_references(&self) -> bool {
        self.null_references.is_some()
    }

    /// Counts references to the null block that a hit adds.
    pub fn touch_null(&mut self, n: usize) {
        if let Some(count) = &mut self.null_references {
            *count = count.wrapping_add(n as i32);
            (0..n).for_each(|_| self.note(|| Observation::Touched(NULL_BLOCK)));
        }
    }

    /// Counts references to the null block that a release drops.
    pub fn release_null(&mut self, n: usize) {
        if let Some(count) = &mut self.null_references {
            *count = count.wrapping_sub(n as i32);
        }
    }

    /// Sets the number of references to the null block, if they are counted.
    pub(crate) fn set_null_references(&mut self, count: u32) {
        match &mut self.null_references {
            Some(references) => *references = count as i32,
            None => self.blocks.set_ref_count(NULL_BLOCK, count),
        }
    }

    /// Appends the next `n` free blocks to `out` and evicts their keys. The caller has checked that
    /// `n` blocks are free.
    pub fn allocate(&mut self, n: usize, out: &mut Vec<BlockId>) {
        let first = out.len();
        self.num_allocated += n as u64;
        let Self { blocks, eviction, index, .. } = self;
        eviction.evict(blocks, n, &|blocks, key| index.find(blocks, key), out);
        self.note(|| Observation::Taking(n));
        for batch in out[first..].chunks(PrefixIndex::BATCH) {
            batch.iter().for_each(|&block| self.note(|| Observation::Taken(block)));
            if let Some(notes) = &mut self.leaving_notes {
                notes.note_taken(&self.blocks, batch);
            }
            self.index.evict(&mut self.blocks, batch);
        }
    }

    /// Adds a reference to each block. A free block is no longer evictable then.
    pub fn touch(&mut self, blocks: &[BlockId]) {
        if self.counts_null_references() || self.observations.is_some() {
            self.note_touched(blocks);
        }
        if let Some(notes) = &mut self.leaving_notes {
            notes.note_used(blocks);
        }
        self.eviction.hit(&mut self.blocks, blocks);
    }

    #[cold]
    fn note_touched(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            match block {
                NULL_BLOCK => self.touch_null(1),
                _ => self.note(|| Observation::Touched(block)),
            }
        }
    }

    /// Drops a reference to each block. Blocks that lose their last reference become free in the
    /// given order: the first one is allocated first.
    pub fn release(&mut self, blocks: &[BlockId]) {
        if self.counts_null_references() {
            self.release_null(blocks.iter().filter(|&&block| block == NULL_BLOCK).count());
        }
        self.eviction.release(&mut self.blocks, blocks);
    }

    /// Does the same as [`Self::release`] with the blocks in reverse order. Does not count null
    /// blocks.
    pub fn release_table(&mut self, table: &[BlockId]) {
        self.eviction.release_table(&mut self.blocks, table);
    }

    /// Drops a reference to each block. Blocks that lose their last reference go to the end of the
    /// free queue, whether they are cached or not (vLLM's `unpin_blocks`).
    pub fn release_to_back(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        self.eviction.queue_mut().release_to_back(&mut self.blocks, blocks);
    }

    /// Flags cached blocks for the pinned tier (vLLM PR 40676).
    pub fn pin(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for block in blocks {
            if self.blocks.is_cached(block) {
                self.blocks.set_pinned(block, true);
            }
        }
    }

    /// Returns the block that serves a key: the first of the blocks that have the key.
    pub fn find(&self, key: &CacheKey) -> Option<BlockId> {
        self.index.find(&self.blocks, key)
    }

    /// Returns every key of a block. The block's own hash comes first.
    pub fn keys_of(&self, block: BlockId) -> impl Iterator<Item = CacheKey> + '_ {
        self.index.keys_of(&self.blocks, block)
    }

    /// Caches full blocks: see [`PrefixIndex::cache_batch`].
    #[inline(never)]
    pub fn cache_batch(&mut self, batch: &FullBlocks<'_>, hints: EvictionHints) -> bool {
        let Self { blocks, index, eviction, .. } = self;
        let all_serve = index.cache_batch(blocks, batch, |blocks, first, duplicate| {
            eviction.note_replaced(blocks, first, duplicate);
        });
        eviction.note_cached(blocks, batch, hints);
        all_serve
    }

    /// Returns the number of blocks in the free queue.
    pub(crate) fn num_queued_blocks(&self) -> usize {
        self.eviction.queue().free.len()
    }

    /// Sets the value of blocks that have just become cached. Null blocks are skipped.
    pub(crate) fn set_value(&mut self, ids: &[BlockId], value: super::ValueLevel) {
        self.eviction.set_value(ids, value);
    }

    /// Caches a block under a key. The key becomes the block's own if it has none, otherwise an
    /// alias. `num_tokens` is the length of the key's prefix.
    pub fn insert_key(&mut self, block: BlockId, key: CacheKey, num_tokens: usize) {
        if self.index.insert(&mut self.blocks, block, key, num_tokens) {
            self.eviction.note_cached_alone(&mut self.blocks, block, &key);
            // The ends of prompts are cached alone. They hold no generated tokens yet.
            if let Some(answers) = &mut self.answers {
                answers.set(block, false);
            }
        }
    }

    /// Caches a block under a key from other code, whose `num_tokens` can be wrong.
    pub fn insert_foreign_key(
        &mut self,
        block: BlockId,
        key: CacheKey,
        num_tokens: usize,
    ) -> Result<()> {
        if !self.index.has_group(key.group) {
            return Err(Error::Block(format!(
                "a block cannot be cached in group {}; this pool does not have that group",
                key.group
            )));
        }
        self.index.removals_mut().give_up();
        self.insert_key(block, key, num_tokens);
        Ok(())
    }

    /// Moves every key of a block to another block, which has none. Creates no event.
    pub fn move_keys(&mut self, from: BlockId, to: BlockId) {
        let is_pinned = self.blocks.is_pinned(from);
        self.index.move_keys(&mut self.blocks, from, to);
        if let Some(key) = self.blocks.key(to) {
            self.eviction.note_cached_alone(&mut self.blocks, to, &key);
        }
        self.eviction.note_moved(&mut self.blocks, from, to);
        if let Some(answers) = &mut self.answers {
            answers.set(to, answers.holds(from));
        }
        // Only cached blocks go to the pinned tier.
        self.blocks.set_pinned(to, is_pinned && self.blocks.is_cached(to));
    }

    /// Removes every key of a block and creates an event for each.
    pub fn remove_keys(&mut self, block: BlockId) {
        self.index.remove_keys(&mut self.blocks, block);
    }

    /// Removes every key of a block and creates no event.
    pub fn remove_keys_silently(&mut self, block: BlockId) {
        self.index.remove_keys_silently(&mut self.blocks, block);
    }

    /// Removes blocks from the prefix cache, whether they are in use or free.
    pub fn evict(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for block in blocks {
            self.note(|| Observation::Evicted(block));
            self.remove_keys(block);
            self.eviction.note_uncached(&mut self.blocks, block);
        }
    }

    /// Removes every key, unless a block is in use. Returns whether it did.
    pub fn reset(&mut self) -> bool {
        if self.num_free_blocks() + 1 != self.num_blocks() as isize {
            return false;
        }
        let Self { blocks, eviction, index, .. } = self;
        eviction.clear(blocks, &|blocks, key| index.find(blocks, key));
        index.clear(blocks);
        true
    }

    /// Sets a reference count and changes nothing else. The block stays in or out of its queue.
    pub fn set_ref_count(&mut self, block: BlockId, count: u32) -> Result<()> {
        if count > MAX_REFERENCES {
            return Err(Error::Block(format!(
                "a block cannot have {count} references; at most {MAX_REFERENCES}"
            )));
        }
        match block {
            NULL_BLOCK => self.set_null_references(count),
            _ => self.by_hand.set_ref_count(&mut self.blocks, block, count),
        }
        Ok(())
    }

    /// Takes a block out of its queue. References counted by hand stay; without any, the block is
    /// loose. Returns `false` for a block that is not queued.
    pub fn unqueue(&mut self, block: BlockId) -> bool {
        let is_free = self.blocks.is_free(block);
        if is_free {
            self.by_hand.take_out(&mut self.eviction, &mut self.blocks, block);
        }
        is_free
    }

    /// Puts loose blocks at an end of the free queue, in their order. Fails, and changes nothing,
    /// if one of them is not loose or given twice.
    pub fn enqueue(&mut self, blocks: &[BlockId], end: QueueEnd) -> Result<()> {
        self.by_hand.put_back(&mut self.eviction, &mut self.blocks, blocks, end)
    }

    /// Returns the free queue, from front to back.
    pub fn free_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.eviction.queue().free.iter(&self.blocks)
    }

    /// Returns the pinned tier, from oldest to newest.
    pub fn pinned_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.eviction.queue().pinned.iter(&self.blocks)
    }

    /// Returns the number of blocks in the pinned tier.
    pub fn num_pinned_blocks(&self) -> usize {
        self.eviction.queue().pinned.len()
    }

    /// Returns the free cached blocks of a policy other than the default, in no particular order.
    pub fn listed_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.eviction.listed_blocks(&self.blocks)
    }

    /// Whether a block is one of [`Self::listed_blocks`].
    pub fn is_listed(&self, block: BlockId) -> bool {
        self.eviction.is_listed(&self.blocks, block)
    }

    /// Returns the blocks that are evicted last, because a running request can come back to them.
    pub(crate) fn protected_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.eviction.protected_blocks(&self.blocks)
    }

    /// Returns the free blocks in the order of allocation, as if no tail got a second chance.
    pub fn eviction_order(&self) -> Vec<BlockId> {
        self.eviction.order(&self.blocks).collect()
    }
}
