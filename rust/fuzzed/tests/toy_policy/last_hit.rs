//! A toy eviction policy: the block whose last hit is the longest ago is evicted first. A block that
//! was never hit counts as hit when it became cached.

use std::collections::{BTreeSet, HashMap};

use kvoxide_core::BlockId;
use kvoxide_core::pool::{Blocks, EvictionHints, EvictionPolicy};

#[derive(Debug, Default)]
pub struct LastHit {
    /// Calls that were hits, or made a block cached.
    now: u64,
    /// When each block was hit last.
    last_hits: HashMap<BlockId, u64>,
    /// Free cached blocks after their last hits.
    free: BTreeSet<(u64, BlockId)>,
}

impl LastHit {
    fn set_hit(&mut self, block: BlockId) {
        self.now += 1;
        self.last_hits.insert(block, self.now);
    }

    fn entry(&self, block: BlockId) -> Option<(u64, BlockId)> {
        self.last_hits.get(&block).map(|&last_hit| (last_hit, block))
    }
}

impl EvictionPolicy for LastHit {
    fn cached(&mut self, _: &Blocks, block: BlockId, _: Option<EvictionHints>) {
        self.set_hit(block);
    }

    fn hit(&mut self, _: &Blocks, block: BlockId) {
        self.set_hit(block);
    }

    fn insert(&mut self, _: &Blocks, block: BlockId) {
        let entry = self.entry(block).expect("a block that became cached");
        assert!(self.free.insert(entry), "block {block} was added twice");
    }

    fn remove(&mut self, _: &Blocks, block: BlockId) -> bool {
        self.entry(block).is_some_and(|entry| self.free.remove(&entry))
    }

    fn evict(&mut self, _: &Blocks) -> Option<BlockId> {
        let (_, block) = self.free.pop_first()?;
        self.last_hits.remove(&block);
        Some(block)
    }

    fn order(&self, _: &Blocks) -> Vec<BlockId> {
        self.free.iter().map(|&(_, block)| block).collect()
    }

    fn num_blocks(&self) -> usize {
        self.free.len()
    }

    fn check(&self, blocks: &Blocks) -> Result<(), String> {
        let is_known = |&(last_hit, block): &(u64, BlockId)| {
            self.last_hits.get(&block) == Some(&last_hit) && blocks.is_free(block)
        };
        match self.free.iter().find(|entry| !is_known(entry)) {
            None => Ok(()),
            Some((_, block)) => Err(format!("block {block} is in use, or its last hit is unknown")),
        }
    }
}
