//! A look-up in pool and tier.

use super::attached::num_brought;
use super::keys::{ChunkKeys, LoadableKeys};
use crate::host::search::{HostHit, HostSearch, TooFewKeys, WantedLoad};
use crate::host::tier::HostTier;
use crate::pool::BlockPool;

impl HostSearch {
    /// Returns the longest hit that a load can bring if it attaches what the pool has. A hit for which
    /// nothing is loaded is none, because the pool has found it already. But the pool finds whole
    /// blocks alone. If a hit that ends inside a block needs no load, the hit before this block can.
    pub fn find_in_both(
        &self,
        wanted: WantedLoad,
        keys: &[impl ChunkKeys],
        pool: &BlockPool,
        tier: &HostTier,
    ) -> Result<HostHit, TooFewKeys> {
        let found = self.find_brought(wanted, keys, (pool, tier))?;
        let end = wanted.num_computed + found.num_tokens.unwrap_or(0);
        let size = self.groups.iter().map(|group| group.tokens_per_block).max().unwrap_or(1);
        let num_before = (end / size * size).saturating_sub(wanted.num_computed);
        if found.num_blocks > 0 || end.is_multiple_of(size) || num_before == 0 {
            return Ok(found.with_load());
        }
        // One more, because the last token of a prompt is left out.
        let before = WantedLoad { max_new: Some(num_before + 1), ..wanted };
        Ok(self.find_brought(before, keys, (pool, tier))?.with_load())
    }

    /// Returns the longest hit in both memories, with the number of blocks that are loaded for it.
    fn find_brought(
        &self,
        wanted: WantedLoad,
        keys: &[impl ChunkKeys],
        (pool, tier): (&BlockPool, &HostTier),
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
        let num_blocks = num_brought(&self.groups, keys, (pool, tier), tokens);
        Ok(HostHit { num_blocks: num_blocks.unwrap_or(0), ..found })
    }
}

impl HostHit {
    /// Returns the same, or no hit if nothing is loaded for it.
    fn with_load(self) -> Self {
        let has_none = self.num_tokens.is_some() && self.num_blocks == 0;
        Self { num_tokens: if has_none { Some(0) } else { self.num_tokens }, ..self }
    }
}
