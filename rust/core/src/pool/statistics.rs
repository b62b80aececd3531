//! Counts the blocks of a pool by their state.

use super::block_pool::BlockPool;
use crate::block::BlockId;

/// The number of blocks in each state. Every block but the null block is counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolStatistics {
    /// Blocks that have references.
    pub in_use: usize,
    /// Free blocks without a key.
    pub empty: usize,
    /// Free cached blocks that are allocated last: pinned, or protected for a running request.
    pub protected: usize,
    /// The other free cached blocks, by the group of their key.
    pub evictable: Vec<usize>,
}

impl PoolStatistics {
    /// Counts the blocks of a pool. Takes time proportional to the pool.
    pub(crate) fn of(pool: &BlockPool) -> Self {
        let (blocks, num_groups) = (pool.blocks(), pool.index().num_groups());
        let group_of = |block| usize::from(blocks.group_of(block));
        // The loop has no branch, because the states of blocks follow no predictable order.
        let (in_use, empty) = (num_groups, num_groups + 1);
        let mut counts = vec![0; num_groups + 2];
        for block in 1..blocks.len() as BlockId {
            let free = if blocks.is_cached(block) { group_of(block) } else { empty };
            counts[if blocks.ref_count(block) > 0 { in_use } else { free }] += 1;
        }
        let (in_use, empty) = (counts[in_use], counts[empty]);
        counts.truncate(num_groups);
        let mut statistics = Self { in_use, empty, protected: 0, evictable: counts };
        for block in pool.protected_blocks().chain(pool.pinned_blocks()) {
            statistics.evictable[group_of(block)] -= 1;
            statistics.protected += 1;
        }
        statistics
    }
}
