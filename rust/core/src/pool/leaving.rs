//! The cached blocks that are evicted next, and the keys that were evicted.

use foldhash::fast::FixedState;

use super::block_pool::BlockPool;
use super::blocks::Blocks;
use crate::block::{BlockId, CacheKey};

type Set<T> = hashbrown::HashSet<T, FixedState>;

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

/// An allocated block, with what it had before.
pub(super) type TakenBlock = (BlockId, Option<LeavingBlock>);

impl LeavingBlock {
    /// Returns a block with its key, if it has one.
    pub(super) fn of(blocks: &Blocks, block: BlockId) -> Option<Self> {
        let num_tokens = blocks.hash_num_tokens(block)?;
        Some(Self { block, key: blocks.key(block)?, num_tokens })
    }
}

impl BlockPool {
    /// Returns the cached ones of the `n` free blocks that are allocated next, in that order. It is
    /// the order without second chances of tails. A block whose key another block serves is left
    /// out.
    pub fn leaving(&self, n: usize) -> impl Iterator<Item = LeavingBlock> + '_ {
        self.eviction.order(&self.blocks).take(n).filter_map(|block| {
            if self.blocks.is_duplicate(block) {
                return None;
            }
            LeavingBlock::of(&self.blocks, block)
        })
    }

    /// Returns how many blocks were allocated since the pool was created.
    pub fn num_allocated(&self) -> u64 {
        self.num_allocated
    }

    /// Records the blocks that are allocated from now on, or stops to.
    pub(crate) fn record_taken(&mut self, are_recorded: bool) {
        self.taken = are_recorded.then(Vec::new);
    }

    /// Returns the keys that were evicted since the last call and that no block has, if allocated
    /// blocks are recorded.
    pub(crate) fn take_evicted_keys(&mut self) -> Vec<CacheKey> {
        let taken = self.taken.as_mut().map(std::mem::take).unwrap_or_default();
        let keys = taken.into_iter().filter_map(|(_, before)| before).map(|block| block.key);
        keys.filter(|key| self.find(key).is_none()).collect()
    }

    /// Does the same, and returns the blocks too, each key once. They have their contents until the
    /// step runs. A block that was allocated before in this step has no contents yet.
    pub(crate) fn take_evicted(&mut self) -> Vec<LeavingBlock> {
        let taken = self.taken.as_mut().map(std::mem::take).unwrap_or_default();
        let mut blocks = Set::with_capacity_and_hasher(taken.len(), FixedState::default());
        let mut keys = Set::with_capacity_and_hasher(taken.len(), FixedState::default());
        let first = taken.into_iter().filter(|&(block, _)| blocks.insert(block));
        let evicted = first.filter_map(|(_, before)| before);
        evicted.filter(|it| self.find(&it.key).is_none() && keys.insert(it.key)).collect()
    }
}
