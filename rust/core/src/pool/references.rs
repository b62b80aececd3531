//! References to blocks come and go: blocks are allocated, hit, released and evicted.

use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::block_pool::BlockPool;
use crate::pool::blocks::Blocks;
use crate::pool::eviction::adaptive::Adaptive;
use crate::pool::index::PrefixIndex;
use crate::pool::observation::Observation;

impl BlockPool {
    /// The adaptive policy, if it is in force.
    pub fn adaptive(&self) -> Option<&Adaptive> {
        self.eviction.adaptive()
    }

    /// The adaptive policy, if it is in force, and the blocks that it orders.
    #[inline]
    pub fn adaptive_mut(&mut self) -> Option<(&mut Adaptive, &mut Blocks)> {
        Some((self.eviction.adaptive_mut()?, &mut self.blocks))
    }

    /// The free cached blocks of the adaptive policy, in no particular order.
    pub fn listed_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.adaptive().into_iter().flat_map(|adaptive| adaptive.blocks(&self.blocks))
    }

    /// Returns the free blocks in the order in which they would be allocated if no tail got a second
    /// chance.
    pub fn eviction_order(&self) -> Vec<BlockId> {
        self.eviction.order(&self.blocks)
    }

    /// Takes the `n` free blocks that go next to the end of `out`, and evicts their keys. The caller
    /// has checked that so many are free.
    pub fn allocate(&mut self, n: usize, out: &mut Vec<BlockId>) {
        let first = out.len();
        let Self { blocks, eviction, index, .. } = self;
        eviction.evict(blocks, n, &|blocks, key| index.find(blocks, key), out);
        self.note(|| Observation::Taking(n));
        for batch in out[first..].chunks(PrefixIndex::BATCH) {
            batch.iter().for_each(|&block| self.note(|| Observation::Taken(block)));
            self.index.evict(&mut self.blocks, batch);
        }
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

    /// Adds a reference to a block in use.
    pub(crate) fn add_reference(&mut self, block: BlockId) {
        self.blocks.add_reference(block);
    }

    /// Whether a block may be written to, since it has one reference and no key.
    pub(crate) fn is_writable(&self, block: BlockId) -> bool {
        block != NULL_BLOCK && self.blocks.ref_count(block) == 1 && !self.blocks.is_cached(block)
    }

    /// Drops a reference to each block. Those that lose their last one become free, in the order
    /// given: the first is allocated first.
    pub fn release(&mut self, blocks: &[BlockId]) {
        if self.counts_null_references() {
            self.release_null(blocks.iter().filter(|&&block| block == NULL_BLOCK).count());
        }
        self.eviction.release(&mut self.blocks, blocks);
    }

    /// Does what [`Self::release`] does, the last block first, without a count of null blocks.
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

    /// Takes blocks out of the prefix cache, in use or not.
    pub fn evict(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for block in blocks {
            self.note(|| Observation::Evicted(block));
            self.remove_keys(block);
            self.eviction.uncached(&mut self.blocks, block);
        }
    }
}
