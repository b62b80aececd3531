//! The part of a cached prefix that is found without reading its hashes one by one.

use super::query::HitQuery;
use crate::block::BlockId;
use crate::error::Result;
use crate::pool::{PrefixIndex, TriePath};

impl HitQuery<'_> {
    /// Adds the blocks of the longest prefix, of at most `limit` blocks, that the pool has linked
    /// in every group, one list per group; how many. Where that ends, only the hashes can tell.
    ///
    /// Reads as many hashes as the number of blocks has digits in base 2, at most twice that: each
    /// stands for all before it.
    pub fn read_linked_prefix(&self, limit: usize, found: &mut [Vec<BlockId>]) -> Result<usize> {
        if !self.hashes.is_chain() || limit < PrefixIndex::MIN_TRIE_HASHES {
            return Ok(0);
        }
        let (len, paths) = self.longest_linked(limit)?;
        for (path, ids) in paths.iter().zip(found) {
            self.pool.index().read_path(path, ids);
        }
        Ok(len)
    }

    /// Returns all that is asked for, or what lies between the last power of two that is linked and the
    /// first that is not.
    fn longest_linked(&self, limit: usize) -> Result<(usize, Vec<TriePath>)> {
        if let Some(paths) = self.paths_of(limit)? {
            return Ok((limit, paths));
        }
        let (mut best, mut linked, mut missing) = (Vec::new(), 0, limit);
        while missing - linked > 1 {
            // Doubles until one is missing, then halves what is left between.
            let len = match missing == limit {
                true => (linked * 2).clamp(1, missing - 1),
                false => linked.midpoint(missing),
            };
            match self.paths_of(len)? {
                Some(paths) => (best, linked) = (paths, len),
                None => missing = len,
            }
        }
        Ok((linked, best))
    }

    /// The paths of the first `len` blocks, if every group has them linked.
    fn paths_of(&self, len: usize) -> Result<Option<Vec<TriePath>>> {
        let hash = self.hashes.get(len - 1)?;
        let path = |&group| self.pool.trie_path(group, hash, len - 1);
        Ok(self.groups.iter().map(path).collect())
    }
}
