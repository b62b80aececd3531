//! S3-FIFO, after "FIFO queues are all you need for cache eviction" (SOSP 2023).
//!
//! New blocks enter a small queue of a tenth of the cache. A block that was hit more than once there
//! moves to the main queue, and others leave. The keys of blocks that left the small queue are kept.
//! A block with such a key enters the main queue. There, a block that was hit gets another round for
//! each hit, up to three. Blocks in use keep their place and are skipped.

use std::collections::HashMap;

use kvoxide_core::BlockId;
use kvoxide_core::pool::{Blocks, EvictionHints, EvictionPolicy};

use super::ghosts::Ghosts;
use super::ordered::Ordered;

const MAX_HITS: u8 = 3;
/// A block with this many hits moves from the small queue to the main queue.
const MOVES_FROM: u8 = 2;

#[derive(Clone, Copy, Debug)]
struct Entry {
    is_main: bool,
    /// The place in the queue.
    place: u64,
    hits: u8,
    is_free: bool,
}

/// Cached blocks, in use or free, in two queues.
#[derive(Debug)]
pub struct S3Fifo {
    capacity: usize,
    entries: HashMap<BlockId, Entry>,
    /// The free blocks of both queues: small and main.
    free: [Ordered; 2],
    /// The number of blocks in both queues, in use or free.
    lengths: [usize; 2],
    ghosts: Ghosts,
    next_place: u64,
}

impl S3Fifo {
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            entries: HashMap::new(),
            free: Default::default(),
            lengths: [0; 2],
            ghosts: Ghosts::default(),
            next_place: 0,
        }
    }

    fn enter(&mut self, block: BlockId, is_main: bool, hits: u8, is_free: bool) {
        let place = self.next_place;
        self.next_place += 1;
        self.entries.insert(block, Entry { is_main, place, hits, is_free });
        self.lengths[usize::from(is_main)] += 1;
        if is_free {
            self.free[usize::from(is_main)].insert(place, block);
        }
    }

    fn leave(&mut self, block: BlockId) -> Option<Entry> {
        let entry = self.entries.remove(&block)?;
        self.lengths[usize::from(entry.is_main)] -= 1;
        if entry.is_free {
            self.free[usize::from(entry.is_main)].remove(entry.place, block);
        }
        Some(entry)
    }

    /// Returns the block that leaves the small queue, after the blocks before it moved to the main
    /// queue.
    fn evict_small(&mut self, blocks: &Blocks) -> Option<BlockId> {
        while let Some((_, block)) = self.free[0].first() {
            let entry = self.leave(block)?;
            if entry.hits < MOVES_FROM {
                if let Some(key) = blocks.key(block) {
                    self.ghosts.push(key);
                    self.ghosts.trim(self.capacity - self.capacity / 10);
                }
                return Some(block);
            }
            self.enter(block, true, 0, true);
        }
        None
    }

    fn evict_main(&mut self) -> Option<BlockId> {
        while let Some((_, block)) = self.free[1].first() {
            let entry = self.leave(block)?;
            if entry.hits == 0 {
                return Some(block);
            }
            self.enter(block, true, entry.hits - 1, true);
        }
        None
    }
}

impl EvictionPolicy for S3Fifo {
    fn cached(&mut self, blocks: &Blocks, block: BlockId, _: Option<EvictionHints>) {
        self.leave(block);
        let is_known = blocks.key(block).is_some_and(|key| self.ghosts.take(&key));
        self.enter(block, is_known, 0, false);
    }

    fn hit(&mut self, _: &Blocks, block: BlockId) {
        if let Some(entry) = self.entries.get_mut(&block) {
            entry.hits = (entry.hits + 1).min(MAX_HITS);
        }
    }

    fn insert(&mut self, _: &Blocks, block: BlockId) {
        match self.entries.get_mut(&block) {
            Some(entry) => {
                entry.is_free = true;
                self.free[usize::from(entry.is_main)].insert(entry.place, block);
            }
            None => self.enter(block, false, 0, true),
        }
    }

    fn remove(&mut self, _: &Blocks, block: BlockId) -> bool {
        let Some(entry) = self.entries.get_mut(&block) else { return false };
        let was_free = std::mem::take(&mut entry.is_free);
        was_free && self.free[usize::from(entry.is_main)].remove(entry.place, block)
    }

    fn evict(&mut self, blocks: &Blocks) -> Option<BlockId> {
        // If all blocks of one queue are in use, the other queue gives way.
        let from_main = match self.lengths[0] * 10 >= self.capacity {
            true => None,
            false => self.evict_main(),
        };
        // The small queue may have moved all of its free blocks to the main queue.
        from_main.or_else(|| self.evict_small(blocks)).or_else(|| self.evict_main())
    }

    fn order(&self, _: &Blocks) -> Vec<BlockId> {
        self.free.iter().flat_map(|queue| queue.iter()).collect()
    }

    fn num_blocks(&self) -> usize {
        self.free.iter().map(Ordered::len).sum()
    }

    fn check(&self, blocks: &Blocks) -> Result<(), String> {
        let is_wrong =
            |(block, entry): &(&BlockId, &Entry)| entry.is_free && !blocks.is_free(**block);
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

    fn pool() -> ToyPool {
        ToyPool::new(10, Baseline::S3Fifo)
    }

    #[test]
    fn blocks_that_were_hit_twice_outlive_a_scan() {
        let mut pool = pool();
        (0..3).for_each(|_| pool.serve(1, &[1, 2]));
        pool.serve(2, &[3]);
        pool.serve(2, &[3]);
        (10..40).for_each(|name| pool.serve(3, &[name]));
        assert_eq!(pool.cached(&[1, 2, 3]), [1, 2], "3 was hit once, which is not enough");
    }

    #[test]
    fn a_block_that_comes_back_soon_enters_the_main_queue() {
        let mut pool = pool();
        (10..30).for_each(|name| pool.serve(1, &[name]));
        assert_eq!(pool.cached(&[15]), [0; 0]);
        pool.serve(1, &[15]);
        (30..60).for_each(|name| pool.serve(1, &[name]));
        assert_eq!(pool.cached(&[15]), [15]);
    }

    #[test]
    fn blocks_that_all_move_to_the_main_queue_can_be_evicted() {
        let mut pool = ToyPool::new(20, Baseline::S3Fifo);
        (0..3).for_each(|_| pool.serve(1, &[1]));
        pool.serve(2, &(10..30).collect::<Vec<_>>());
        assert_eq!(pool.cached(&[1]), [0; 0], "the small queue was short, and the main one empty");
    }

    #[test]
    fn a_hit_block_keeps_its_place() {
        let mut pool = pool();
        (0..10).for_each(|name| pool.serve(1, &[name]));
        pool.serve(1, &[0]);
        pool.serve(1, &[20]);
        assert_eq!(pool.cached(&[0, 1]), [1], "one hit does not move a block");
    }
}
