//! Blocks are allocated, hit, released and evicted.

use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::block_pool::BlockPool;
use crate::pool::blocks::records::Taken;
use crate::pool::index::keys::Keys;
use crate::pool::index::{HashTable, Place};
use crate::pool::observation::Observation;

impl BlockPool {
    /// Takes the `n` free blocks that go next to the end of `out`, and evicts their keys. The caller
    /// has checked that so many are free.
    pub fn take(&mut self, n: usize, out: &mut Vec<BlockId>) {
        let first = out.len();
        let Self { blocks, eviction, index, alias_keys, layout, .. } = self;
        let keys = Keys { index, alias_keys, layout: *layout };
        eviction.evict(blocks, n, &|blocks, key| keys.find(blocks, key), out);
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

    /// Reuses cached blocks without further keys up to one of which more has to change than its own
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

    /// Adds a reference to each block; a free one is not evictable any more.
    pub fn touch(&mut self, blocks: &[BlockId]) {
        if self.counts_null_references() || self.is_observed() {
            self.note_touched(blocks);
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
        if self.counts_null_references() {
            self.release_null(blocks.iter().filter(|&&block| block == NULL_BLOCK).count());
        }
        self.eviction.release(&mut self.blocks, blocks);
    }

    /// As [`Self::release`], the last block first, and null blocks passed over.
    pub fn release_table(&mut self, table: &[BlockId]) {
        self.eviction.release_table(&mut self.blocks, table);
    }

    /// Drops a reference to each block and puts those that lose their last one at the end of the
    /// free queue, cached or not (vLLM's `unpin_blocks`).
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

    /// Takes blocks out of the prefix cache, whoever holds them.
    pub fn evict(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for block in blocks {
            self.note(|| Observation::Evicted(block));
            self.remove_keys(block);
            self.eviction.uncached(&mut self.blocks, block);
        }
    }
}
