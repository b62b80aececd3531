//! Where the blocks of a pool are, counted for who asks; and which group's blocks were evicted, from
//! when on somebody wants to know.

use super::block_pool::BlockPool;
use super::index::Place;
use crate::block::BlockId;

/// Every block but the null block, counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Blocks that somebody uses.
    pub in_use: usize,
    /// Free blocks without a key.
    pub empty: usize,
    /// Free cached blocks that are recycled last: pinned, or held for a request that runs.
    pub held: usize,
    /// The other free cached blocks, by the group of their key.
    pub waiting: Vec<usize>,
}

impl BlockPool {
    /// Counts the blocks, in time proportional to the pool.
    pub fn statistics(&self) -> PoolStatistics {
        let num_groups = self.layout.num_groups();
        // What follows a block is as good as random: nothing to branch on.
        let (in_use, empty) = (num_groups, num_groups + 1);
        let mut counts = vec![0; num_groups + 2];
        for block in 1..self.num_blocks() as BlockId {
            let free = if self.blocks.is_cached(block) { self.group_of(block) } else { empty };
            counts[if self.blocks.ref_count(block) > 0 { in_use } else { free }] += 1;
        }
        let (in_use, empty) = (counts[in_use], counts[empty]);
        counts.truncate(num_groups);
        let mut statistics = PoolStatistics { in_use, empty, held: 0, waiting: counts };
        let held = self.adaptive().into_iter().flat_map(|adaptive| adaptive.held(&self.blocks));
        for block in held.chain(self.pinned_blocks()) {
            statistics.waiting[self.group_of(block)] -= 1;
            statistics.held += 1;
        }
        statistics
    }

    fn group_of(&self, block: BlockId) -> usize {
        usize::from(self.blocks.group_of(block))
    }

    /// Counts evictions by group from now on.
    pub fn count_evictions_by_group(&mut self) {
        let num_groups = self.layout.num_groups();
        self.evictions_by_group.get_or_insert_with(|| vec![0; num_groups]);
    }

    /// Cached blocks of each group that lost their keys to reuse; `None` if nobody wanted to know.
    pub fn evictions_by_group(&self) -> Option<&[u64]> {
        self.evictions_by_group.as_deref()
    }

    /// Blocks are about to be evicted.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_evictions(&mut self, evicted: &[(BlockId, Place)]) {
        let Some(counts) = &mut self.evictions_by_group else { return };
        if let [all] = &mut counts[..] {
            *all += evicted.len() as u64;
            return;
        }
        for (_, key) in evicted {
            counts[usize::from(self.layout.group_of(key.fingerprint))] += 1;
        }
    }
}
