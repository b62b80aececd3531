//! Keeps the longest cached prefix of a request up to date, instead of looking it up again.

use crate::block::BlockId;
use crate::error::Result;
use crate::group::{HitQuery, KnownPrefix};
use crate::pool::{BlockPool, LogPosition, PrefixCursor};

/// The blocks of the longest cached prefix in groups that are looked up together.
#[derive(Clone, Debug, Default)]
pub(crate) struct CachedPrefix {
    pub(super) ids: Vec<Vec<BlockId>>,
    pub(super) seen: LogPosition,
    /// The number of leading blocks in the prefix trie, if the last update counted them.
    pub(super) num_in_trie: Option<usize>,
}

impl CachedPrefix {
    /// Returns the blocks for a search.
    pub(crate) fn known(&self) -> KnownPrefix {
        Some(self.ids.clone()).into()
    }

    /// Returns the blocks for a search. The prefix is not needed afterwards.
    pub(crate) fn into_known(self) -> KnownPrefix {
        Some(self.ids).into()
    }

    /// Adds the blocks that are not in the prefix trie to it. Returns whether all blocks are in it
    /// then.
    pub(crate) fn add_to_trie(&mut self, pool: &mut BlockPool, block_size: usize) -> bool {
        let Some(first) = self.num_in_trie else { return false };
        let len = self.len();
        let BlockPool { index, blocks, .. } = pool;
        let add = |ids: &Vec<BlockId>| {
            first == len || index.add_prefix_to_trie(blocks, ids, first, block_size)
        };
        self.ids.iter().map(add).fold(true, |all, added| all & added)
    }

    /// Updates the prefix at least up to the end that `query` reads.
    pub(crate) fn update(&mut self, query: &HitQuery<'_>) -> Result<()> {
        if self.ids.len() != query.groups.len() {
            self.ids = vec![Vec::new(); query.groups.len()];
        }
        self.forget_removed(query)?;
        self.seen = query.pool.index().removals().end();
        self.extend(query)
    }

    fn forget_removed(&mut self, query: &HitQuery<'_>) -> Result<()> {
        let Some(removed) = query.pool.index().removals().since(self.seen) else {
            self.ids.iter_mut().for_each(Vec::clear);
            return Ok(());
        };
        for key in removed {
            let group = query.groups.iter().position(|&group| group == key.group);
            let position = key.num_tokens.saturating_sub(1) / query.block_size;
            if let Some(i) = group.filter(|&i| self.ids[i].get(position) == Some(&key.block)) {
                self.look_up_again(query, i, position)?;
            }
        }
        Ok(())
    }

    /// Looks up a position again after its block lost its key. Another block can serve the key now.
    fn look_up_again(&mut self, query: &HitQuery<'_>, i: usize, position: usize) -> Result<()> {
        let hash = query.hashes.get(position)?;
        match PrefixCursor::new(query.groups[i]).find(query.pool.index(), query.pool.blocks(), hash)
        {
            Some(block) => self.ids[i][position] = block,
            None => self.ids.iter_mut().for_each(|ids| ids.truncate(position)),
        }
        Ok(())
    }

    fn extend(&mut self, query: &HitQuery<'_>) -> Result<()> {
        let limit = query.max_blocks().min(query.hashes.len());
        let is_new = self.len() == 0;
        let num_in_trie = query.extend_prefix(limit, &mut self.ids)?;
        self.num_in_trie = is_new.then_some(num_in_trie);
        Ok(())
    }

    fn len(&self) -> usize {
        self.ids.first().map_or(0, Vec::len)
    }

    pub(super) fn num_ids(&self) -> usize {
        self.ids.iter().map(Vec::len).sum()
    }
}
