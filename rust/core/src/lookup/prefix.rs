//! The longest cached prefix of a request, brought up to date instead of searched anew.

use crate::block::BlockId;
use crate::error::Result;
use crate::group::{HitQuery, KnownPrefix};
use crate::pool::{BlockPool, LogPosition, PrefixCursor};

/// The blocks of the longest cached prefix in groups that are looked up together.
#[derive(Clone, Debug, Default)]
pub struct CachedPrefix {
    pub(super) ids: Vec<Vec<BlockId>>,
    pub(super) seen: LogPosition,
    /// Blocks at the start that the pool has linked, if that was asked just now.
    pub(super) num_linked: Option<usize>,
}

impl CachedPrefix {
    /// The blocks, for a search.
    pub fn known(&self) -> KnownPrefix {
        Some(self.ids.clone()).into()
    }

    /// As [`Self::known`], for the last search.
    pub fn into_known(self) -> KnownPrefix {
        Some(self.ids).into()
    }

    /// Links what is not linked yet in these groups, so that the next look-up finds all of it as
    /// one; whether that was done for all.
    pub fn link(&mut self, pool: &mut BlockPool, block_size: usize) -> bool {
        let Some(first) = self.num_linked else { return false };
        let len = self.len();
        let link =
            |ids: &Vec<BlockId>| first == len || pool.add_prefix_to_trie(ids, first, block_size);
        self.ids.iter().map(link).fold(true, |all, linked| all & linked)
    }

    /// Brings the prefix up to date, at least as far as `query` reads.
    pub fn update(&mut self, query: &HitQuery<'_>) -> Result<()> {
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
                self.ask_again(query, i, position)?;
            }
        }
        Ok(())
    }

    /// Another block may serve the key that one has lost.
    fn ask_again(&mut self, query: &HitQuery<'_>, i: usize, position: usize) -> Result<()> {
        let hash = query.hashes.get(position)?;
        match PrefixCursor::new(query.groups[i]).find(query.pool.index(), query.pool.blocks(), hash)
        {
            Some(heir) => self.ids[i][position] = heir,
            None => self.ids.iter_mut().for_each(|ids| ids.truncate(position)),
        }
        Ok(())
    }

    fn extend(&mut self, query: &HitQuery<'_>) -> Result<()> {
        let limit = query.max_blocks().min(query.hashes.len());
        let is_new = self.len() == 0;
        let linked = query.extend_prefix(limit, &mut self.ids)?;
        self.num_linked = is_new.then_some(linked);
        Ok(())
    }

    fn len(&self) -> usize {
        self.ids.first().map_or(0, Vec::len)
    }

    pub(super) fn num_ids(&self) -> usize {
        self.ids.iter().map(Vec::len).sum()
    }
}
