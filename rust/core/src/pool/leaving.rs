//! The cached blocks that are evicted next, and the keys that were evicted.

use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::block_pool::BlockPool;
use super::block_set::BlockSet;
use super::blocks::Blocks;
use crate::block::{BlockId, CacheKey};

/// A free cached block that is evicted soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeavingBlock {
    /// The block.
    pub block: BlockId,
    /// The key of its own hash.
    pub key: CacheKey,
    /// The number of tokens of the prefix that its hash covers.
    pub num_tokens: usize,
}

/// The notes of a pool for a tier that stores its blocks before they are evicted.
#[derive(Debug)]
pub(super) struct LeavingNotes {
    /// The blocks that were allocated, with what they had before unless it was returned as leaving.
    taken: Vec<(BlockId, Option<LeavingBlock>)>,
    /// The blocks that were returned and have been free since.
    returned: BlockSet,
}

impl LeavingNotes {
    /// Notes that blocks are being allocated.
    pub(super) fn note_taken(&mut self, blocks: &Blocks, taken: &[BlockId]) {
        let Self { taken: noted, returned } = self;
        noted.extend(taken.iter().map(|&block| match returned.has(block) {
            true => (block, None),
            false => (block, LeavingBlock::of(blocks, block)),
        }));
        self.note_used(taken);
    }

    /// Notes that blocks are used.
    pub(super) fn note_used(&mut self, used: &[BlockId]) {
        used.iter().for_each(|&block| self.returned.set(block, false));
    }
}

impl LeavingBlock {
    /// Returns a block with its key, if it has one.
    pub(super) fn of(blocks: &Blocks, block: BlockId) -> Option<Self> {
        let num_tokens = blocks.hash_num_tokens(block)?;
        Some(Self { block, key: blocks.key(block)?, num_tokens })
    }
}

impl BlockPool {
    /// Returns the cached ones of the free blocks at `places` of the order in which they are allocated
    /// next. It is the order without second chances of tails. Left out are blocks whose key another
    /// block serves, and, if the pool takes notes, blocks that were returned before and have been free
    /// since.
    pub fn leaving(&self, places: Range<usize>) -> impl Iterator<Item = LeavingBlock> + '_ {
        let notes = self.leaving_notes.as_deref();
        let is_new = move |&block: &BlockId| notes.is_none_or(|notes| !notes.returned.has(block));
        let next = self.eviction.order(&self.blocks).take(places.end).skip(places.start);
        let next = next.filter(is_new);
        let serves = next.filter(|&block| !self.blocks.is_duplicate(block));
        serves.filter_map(|block| LeavingBlock::of(&self.blocks, block))
    }

    /// Does the same, and counts the blocks as returned. Returns none unless the pool takes notes.
    pub(crate) fn take_leaving(&mut self, places: Range<usize>) -> Vec<LeavingBlock> {
        if self.leaving_notes.is_none() {
            return Vec::new();
        }
        let mut leaving = Vec::with_capacity(places.len().min(self.num_blocks()));
        self.leaving(places).for_each(|block| leaving.push(block));
        self.set_returned(leaving.iter().map(|it| it.block));
        leaving
    }

    /// Counts blocks as returned, until they are used.
    pub(crate) fn set_returned(&mut self, blocks: impl Iterator<Item = BlockId>) {
        if let Some(notes) = &mut self.leaving_notes {
            blocks.for_each(|block| notes.returned.set(block, true));
        }
    }

    /// Counts no block as returned.
    pub(crate) fn forget_leaving(&mut self) {
        if let Some(notes) = &mut self.leaving_notes {
            notes.returned.clear();
        }
    }

    /// Returns how many blocks were allocated since the pool was created.
    pub fn num_allocated(&self) -> u64 {
        self.num_allocated
    }

    /// Takes notes from now on, or stops to.
    pub(crate) fn note_leaving(&mut self, are_noted: bool) {
        let new = || LeavingNotes { taken: Vec::new(), returned: BlockSet::new(self.num_blocks()) };
        self.leaving_notes = are_noted.then(|| Box::new(new()));
    }

    /// Returns the keys that were evicted since the last call and that no block has, if the pool
    /// takes notes.
    pub(crate) fn take_evicted_keys(&mut self) -> Vec<CacheKey> {
        self.take_taken(|pool, taken| {
            let keys = taken.iter().filter_map(|(_, before)| Some(before.as_ref()?.key));
            keys.filter(|key| pool.find(key).is_none()).collect()
        })
    }

    /// Does the same, and returns the blocks too, each key once, without those that were returned as
    /// leaving. They have their contents until the step runs. A block that was allocated before in
    /// this step has no contents yet.
    pub(crate) fn take_evicted(&mut self) -> Vec<LeavingBlock> {
        self.take_taken(|pool, taken| {
            if taken.is_empty() {
                return Vec::new();
            }
            let mut blocks = BlockSet::new(pool.num_blocks());
            let mut keys = HashSet::with_hasher(FixedState::default());
            let first = taken.iter().filter(|&&(block, _)| blocks.insert(block));
            let evicted = first.filter_map(|&(_, before)| before);
            evicted.filter(|it| pool.find(&it.key).is_none() && keys.insert(it.key)).collect()
        })
    }

    fn take_taken<T>(
        &mut self,
        read: impl FnOnce(&Self, &[(BlockId, Option<LeavingBlock>)]) -> Vec<T>,
    ) -> Vec<T> {
        let Some(mut notes) = self.leaving_notes.take() else { return Vec::new() };
        let result = read(self, &notes.taken);
        notes.taken.clear();
        self.leaving_notes = Some(notes);
        result
    }
}
