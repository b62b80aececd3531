//! The longest cached prefix of a request, brought up to date instead of searched anew.

use crate::block::BlockId;
use crate::error::Result;
use crate::group::HitQuery;
use crate::pool::{ChainCursor, LogPosition};

/// The blocks of the longest cached prefix in groups that are looked up together.
#[derive(Clone, Debug, Default)]
pub struct CachedPrefix {
    pub(super) ids: Vec<Vec<BlockId>>,
    pub(super) seen: LogPosition,
}

impl CachedPrefix {
    /// The blocks, one list per group.
    pub fn ids(&self) -> &[Vec<BlockId>] {
        &self.ids
    }

    /// Brings the prefix up to date, at least as far as `query` reads.
    pub fn update(&mut self, query: &HitQuery<'_>) -> Result<()> {
        if self.ids.len() != query.groups.len() {
            self.ids = vec![Vec::new(); query.groups.len()];
        }
        self.forget_removed(query)?;
        self.seen = query.pool.removal_log().end();
        self.extend(query)
    }

    fn forget_removed(&mut self, query: &HitQuery<'_>) -> Result<()> {
        let Some(removed) = query.pool.removal_log().since(self.seen) else {
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
        match ChainCursor::new(query.groups[i]).find(query.pool, hash) {
            Some(heir) => self.ids[i][position] = heir,
            None => self.ids.iter_mut().for_each(|ids| ids.truncate(position)),
        }
        Ok(())
    }

    fn extend(&mut self, query: &HitQuery<'_>) -> Result<()> {
        let limit = query.max_blocks().min(query.hashes.len());
        let last = |ids: &Vec<BlockId>| ids.last().copied();
        let lasts: Vec<_> = self.ids.iter().map(last).collect();
        let mut cursors: Vec<_> =
            query.groups.iter().zip(lasts).map(|(&g, last)| ChainCursor::after(g, last)).collect();
        query.find_while_cached(&mut cursors, self.len()..limit, &mut self.ids)
    }

    fn len(&self) -> usize {
        self.ids.first().map_or(0, Vec::len)
    }

    pub(super) fn num_ids(&self) -> usize {
        self.ids.iter().map(Vec::len).sum()
    }
}
