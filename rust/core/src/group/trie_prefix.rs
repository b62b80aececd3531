//! The part of a cached prefix that the prefix trie has, which is found by few hashes.

use super::query::HitQuery;
use crate::block::BlockId;
use crate::error::Result;
use crate::pool::{PrefixIndex, TriePath};

impl HitQuery<'_> {
    /// Adds the blocks of the longest prefix, of at most `limit` blocks, that is in the trie for
    /// every group to one list per group, and returns their number. Blocks behind may be cached
    /// too.
    ///
    /// Reads about log2 of the number of blocks hashes, at most twice that, because each hash
    /// covers all before it.
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

    /// Returns the longest prefix in the trie: `limit`, or what a binary search finds between the
    /// last power of two in the trie and the first that is not.
    fn longest_in_trie(&self, limit: usize) -> Result<(usize, Vec<TriePath>)> {
        if let Some(paths) = self.paths_of(limit)? {
            return Ok((limit, paths));
        }
        let (mut best, mut present, mut missing) = (Vec::new(), 0, limit);
        while missing - present > 1 {
            // Doubles until one is missing, then halves the distance.
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
