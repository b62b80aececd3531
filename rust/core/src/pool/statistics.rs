//! How many blocks of a pool are in which state.

use super::block_pool::BlockPool;
use crate::block::BlockId;

/// Every block but the null block, counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolStatistics {
    /// Blocks with references.
    pub in_use: usize,
    /// Free blocks without a key.
    pub empty: usize,
    /// Free cached blocks that are allocated last: pinned, or protected for a request that runs.
    pub protected: usize,
    /// The other free cached blocks, by the group of their key.
    pub evictable: Vec<usize>,
}

impl BlockPool {
    /// Counts the blocks, in time proportional to the pool.
    pub(crate) fn statistics(&self) -> PoolStatistics {
        let num_groups = self.index.num_groups();
        // Without a branch, since the states of blocks are in no order that one could predict.
        let (in_use, empty) = (num_groups, num_groups + 1);
        let mut counts = vec![0; num_groups + 2];
        for block in 1..self.num_blocks() as BlockId {
            let free = if self.blocks.is_cached(block) { self.group_of(block) } else { empty };
            counts[if self.blocks.ref_count(block) > 0 { in_use } else { free }] += 1;
        }
        let (in_use, empty) = (counts[in_use], counts[empty]);
        counts.truncate(num_groups);
        let mut statistics = PoolStatistics { in_use, empty, protected: 0, evictable: counts };
        let protected =
            self.adaptive().into_iter().flat_map(|adaptive| adaptive.protected_tails(&self.blocks));
        for block in protected.chain(self.pinned_blocks()) {
            statistics.evictable[self.group_of(block)] -= 1;
            statistics.protected += 1;
        }
        statistics
    }

    fn group_of(&self, block: BlockId) -> usize {
        usize::from(self.blocks.group_of(block))
    }

    /// Counts evictions by group from now on.
    pub fn count_evictions_by_group(&mut self) {
        self.index.count_evictions_by_group();
    }
}
