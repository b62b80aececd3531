//! A look-up in pool and tier.

use super::attached::num_brought;
use super::keys::{ChunkKeys, LoadableKeys};
use crate::host::search::{HostHit, HostSearch, TooFewKeys, WantedLoad};
use crate::host::tier::HostTier;
use crate::pool::BlockPool;

impl HostSearch {
    /// Returns how many blocks of the pool a load of `num_tokens` tokens takes at most.
    pub fn num_blocks_taken(&self, num_tokens: usize) -> u64 {
        let num_blocks = self.groups.iter().map(|group| {
            let num_blocks = num_tokens.div_ceil(group.tokens_per_block);
            group.load_window(num_tokens).map_or(num_blocks, |window| window.min(num_blocks))
        });
        num_blocks.sum::<usize>() as u64
    }

    /// Returns the longest hit that a load can bring if it attaches what the pool has. A hit for which
    /// nothing is loaded is none, because the pool has found it already.
    pub fn find_in_both(
        &self,
        wanted: WantedLoad,
        keys: &[impl ChunkKeys],
        pool: &BlockPool,
        tier: &HostTier,
    ) -> Result<HostHit, TooFewKeys> {
        let groups = self.groups.iter().zip(keys);
        let loadable: Vec<_> = groups
            .map(|(group, keys)| LoadableKeys { keys, pool, is_state: group.is_state })
            .collect();
        let found = self.find(wanted, &loadable, tier)?;
        let Some(num_tokens) = found.num_tokens.filter(|&num_tokens| num_tokens > 0) else {
            return Ok(found);
        };
        let tokens = (wanted.num_computed, wanted.num_computed + num_tokens);
        match num_brought(&self.groups, keys, (pool, tier), tokens) {
            Some(1..) => Ok(found),
            Some(0) | None => Ok(HostHit { num_tokens: Some(0), ..found }),
        }
    }
}
