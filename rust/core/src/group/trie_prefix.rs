//! Finds the part of a cached prefix that is in the prefix trie. This reads only few hashes.

use super::query::HitQuery;
use crate::block::BlockId;
use crate::error::Result;
use crate::pool::{PrefixIndex, TriePath};

impl HitQuery<'_> {
    /// Finds the longest prefix, of at most `limit` blocks, that is in the trie for every group.
    /// Adds its blocks to one list per group and returns their number. Blocks after the prefix can
    /// be cached, too.
    ///
    /// Each hash covers all hashes before it. So for n blocks, this reads about log2(n) hashes, at
    /// most twice as many.
    pub(crate) fn read_trie_prefix(
        &self,
        limit: usize,
        found: &mut [Vec<BlockId>],
    ) -> Result<usize> {
        if !self.hashes.is_chain() || limit < PrefixIndex::MIN_TRIE_HASHES {
            return Ok(0);
        }
        let (len, paths) = self.longest_in_trie(limit)?;
        for (path, ids) in paths.iter().zip(found) {
            self.pool.index().read_path(path, ids);
        }
        Ok(len)
    }

    /// Returns the longest prefix in the trie. If it is shorter than `limit`, lengths are doubled
    /// until one is missing. Then a binary search finds the length.
    fn longest_in_trie(&self, limit: usize) -> Result<(usize, Vec<TriePath>)> {
        if let Some(paths) = self.paths_of(limit)? {
            return Ok((limit, paths));
        }
        let (mut best, mut present, mut missing) = (Vec::new(), 0, limit);
        while missing - present > 1 {
            // Doubles until one length is missing, then halves the distance.
            let len = match missing == limit {
                true => (present * 2).clamp(1, missing - 1),
                false => present.midpoint(missing),
            };
            match self.paths_of(len)? {
                Some(paths) => (best, present) = (paths, len),
                None => missing = len,
            }
        }
        Ok((present, best))
    }

    /// Returns the paths of the first `len` blocks, if the trie has them for every group.
    fn paths_of(&self, len: usize) -> Result<Option<Vec<TriePath>>> {
        let hash = self.hashes.get(len - 1)?;
        let path = |&group| self.pool.index().trie_path(self.pool.blocks(), group, hash, len - 1);
        Ok(self.groups.iter().map(path).collect())
    }
}
