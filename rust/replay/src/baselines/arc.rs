//! ARC, after "ARC: A self-tuning, low overhead replacement cache" (FAST 2003).
//!
//! Blocks that were used once are in one list, and blocks that were used more often in another, both
//! in the order of LRU. Keys of evicted blocks are kept for each list. A block whose key is among
//! them shifts the target length of the first list. A block is evicted before the block that takes
//! its room is known. So a list gives way if it is longer than its target.

use std::collections::HashMap;

use kvoxide_core::BlockId;
use kvoxide_core::pool::{Blocks, EvictionHints, EvictionPolicy};

use super::ghosts::Ghosts;
use super::ordered::Ordered;

#[derive(Clone, Copy, Debug)]
struct Entry {
    is_frequent: bool,
    /// The number of the block among the free blocks; `None` while it is in use.
    number: Option<u64>,
}

/// Cached blocks, in use or free, in two lists.
#[derive(Debug)]
pub struct Arc {
    capacity: usize,
    /// The target length of the list of blocks that were used once.
    target: usize,
    entries: HashMap<BlockId, Entry>,
    /// The free blocks of both lists.
    free: [Ordered; 2],
    /// The number of blocks in both lists, in use or free.
    lengths: [usize; 2],
    ghosts: [Ghosts; 2],
    num_freed: u64,
}

impl Arc {
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            target: 0,
            entries: HashMap::new(),
            free: Default::default(),
            lengths: [0; 2],
            ghosts: Default::default(),
            num_freed: 0,
        }
    }

    /// Adds a block in use to a list.
    fn enter(&mut self, block: BlockId, is_frequent: bool) {
        self.entries.insert(block, Entry { is_frequent, number: None });
        self.lengths[usize::from(is_frequent)] += 1;
    }

    fn leave(&mut self, block: BlockId) -> Option<Entry> {
        let entry = self.entries.remove(&block)?;
        let list = usize::from(entry.is_frequent);
        self.lengths[list] -= 1;
        if let Some(number) = entry.number {
            self.free[list].remove(number, block);
        }
        Some(entry)
    }

    /// Shifts the target length for a key that was evicted. Returns whether it was.
    fn learn(&mut self, blocks: &Blocks, block: BlockId) -> bool {
        let Some(key) = blocks.key(block) else { return false };
        let [once, often] = self.ghosts.each_ref().map(Ghosts::len);
        if self.ghosts[0].take(&key) {
            self.target = (self.target + (often / once.max(1)).max(1)).min(self.capacity);
            return true;
        }
        let was_often = self.ghosts[1].take(&key);
        if was_often {
            self.target = self.target.saturating_sub((once / often.max(1)).max(1));
        }
        was_often
    }

    fn evict_from(&mut self, list: usize, blocks: &Blocks) -> Option<BlockId> {
        let (_, block) = self.free[list].first()?;
        self.leave(block);
        if let Some(key) = blocks.key(block) {
            self.ghosts[list].push(key);
        }
        let [once, often] = self.lengths;
        self.ghosts[0].trim(self.capacity.saturating_sub(once));
        let others = once + often + self.ghosts[0].len();
        self.ghosts[1].trim((2 * self.capacity).saturating_sub(others));
        Some(block)
    }
}

impl EvictionPolicy for Arc {
    fn cached(&mut self, blocks: &Blocks, block: BlockId, _: Option<EvictionHints>) {
        self.leave(block);
        let is_frequent = self.learn(blocks, block);
        self.enter(block, is_frequent);
    }

    fn hit(&mut self, _: &Blocks, block: BlockId) {
        if self.leave(block).is_some() {
            self.enter(block, true);
        }
    }

    fn insert(&mut self, _: &Blocks, block: BlockId) {
        if !self.entries.contains_key(&block) {
            self.enter(block, false);
        }
        let Some(entry) = self.entries.get_mut(&block) else { return };
        entry.number = Some(self.num_freed);
        self.free[usize::from(entry.is_frequent)].insert(self.num_freed, block);
        self.num_freed += 1;
    }

    fn remove(&mut self, _: &Blocks, block: BlockId) -> bool {
        let Some(entry) = self.entries.get_mut(&block) else { return false };
        let Some(number) = entry.number.take() else { return false };
        self.free[usize::from(entry.is_frequent)].remove(number, block)
    }

    fn evict(&mut self, blocks: &Blocks) -> Option<BlockId> {
        // If all blocks of one list are in use, the other list gives way.
        let first = usize::from(self.lengths[0] <= self.target);
        self.evict_from(first, blocks).or_else(|| self.evict_from(1 - first, blocks))
    }

    fn order(&self, _: &Blocks) -> Vec<BlockId> {
        self.free.iter().flat_map(|list| list.iter()).collect()
    }

    fn num_blocks(&self) -> usize {
        self.free.iter().map(Ordered::len).sum()
    }

    fn check(&self, blocks: &Blocks) -> Result<(), String> {
        let is_wrong = |(block, entry): &(&BlockId, &Entry)| {
            entry.number.is_some() && !blocks.is_free(**block)
        };
        match self.entries.iter().find(is_wrong) {
            Some((block, _)) => Err(format!("block {block} is in use")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::baselines::Baseline;
    use crate::baselines::toy_pool::ToyPool;

    #[test]
    fn blocks_that_were_used_twice_outlive_a_scan() {
        let mut pool = ToyPool::new(6, Baseline::Arc);
        pool.serve(1, &[1, 2]);
        pool.serve(1, &[1, 2]);
        (10..40).for_each(|name| pool.serve(2, &[name]));
        assert_eq!(pool.cached(&[1, 2]), [1, 2]);
    }

    #[test]
    fn keys_that_come_back_shift_the_target_to_recent_blocks() {
        let mut pool = ToyPool::new(4, Baseline::Arc);
        pool.serve(1, &[1, 2]);
        pool.serve(1, &[1, 2]);
        // Blocks 3 to 5 leave the list of recent blocks and come back, one after the other.
        for name in [3, 4, 5, 3, 4, 5] {
            pool.serve(2, &[name]);
        }
        assert_eq!(pool.cached(&[1, 2, 3, 4, 5]).len(), 4);
        assert!(pool.cached(&[1, 2]).len() < 2, "the target leaves less to frequent blocks");
    }
}
