//! Keys that the tests of this folder share.

use crate::block::{BlockHash, CacheKey};

pub(super) const BLOCK: usize = 16;

pub(super) fn hashes(first: u64, len: u64) -> Vec<BlockHash> {
    (first..first + len).map(|n| BlockHash([n, 1, 1, 1])).collect()
}

pub(super) fn key(hash: &BlockHash) -> CacheKey {
    CacheKey { hash: *hash, group: 0 }
}
