//! Looks up a prefix in groups that share a spec.

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};

use crate::block::{BlockHash, BlockId, CacheKey, GroupId};
use crate::error::Result;
use crate::pool::{BlockPool, PrefixCursor};
use crate::request::{GroupBlocks, GroupHashes};

/// Hashes are read in batches. The first batches are small because most look-ups end early.
const FIRST_READ: usize = 4;
const LARGEST_READ: usize = 256;

/// A look-up in groups that share a spec.
#[derive(Clone, Copy, Debug)]
pub struct HitQuery<'a> {
    /// The pool.
    pub pool: &'a BlockPool,
    /// The groups. A block is hit only if all groups have it.
    pub groups: &'a [GroupId],
    /// The request's hashes at the granularity of these groups.
    pub hashes: GroupHashes<'a>,
    /// The request's hashes at the granularity of hash blocks, for hits that end inside a block.
    pub hash_block_hashes: GroupHashes<'a>,
    /// Tokens per block.
    pub block_size: usize,
    /// The most tokens of the hit.
    pub max_length: usize,
    /// Whether the last matched block is dropped, so that the model recomputes its hidden states.
    pub drops_eagle_block: bool,
    /// The length of the hit is a multiple of this many tokens.
    pub alignment: usize,
    /// The blocks of the cached prefix, if they are already known.
    pub known_prefix: Option<&'a KnownPrefix>,
}

/// The blocks of the longest cached prefix, one list per group; `None` after a query took them.
pub type KnownPrefix = RefCell<Option<Vec<Vec<BlockId>>>>;

/// A hit in the groups of a query. Blocks that a group does not need are null.
#[derive(Clone, Debug, Default)]
pub struct GroupHit {
    /// The length of the hit, in tokens.
    pub length: usize,
    /// One list per group of the query.
    pub blocks: Vec<GroupBlocks>,
}

impl GroupHit {
    /// Returns a hit without blocks.
    pub(crate) fn none(num_groups: usize) -> Self {
        Self { length: 0, blocks: vec![GroupBlocks::default(); num_groups] }
    }
}

impl HitQuery<'_> {
    /// Returns the largest number of blocks that the hit can have.
    pub fn max_blocks(&self) -> usize {
        self.max_length / self.block_size
    }

    /// Returns whether hits can end inside a block, at any multiple of the alignment, which is then
    /// a hash block.
    pub(crate) fn is_fine_grained(&self) -> bool {
        self.alignment < self.block_size && self.block_size.is_multiple_of(self.alignment)
    }

    /// Returns the longest cached prefix whose number of hash blocks is in a range: its number of
    /// tokens, and its last block in each group. All groups must have it.
    pub(crate) fn last_hash_block(
        &self,
        num_hash_blocks: RangeInclusive<usize>,
    ) -> Result<Option<(usize, Vec<BlockId>)>> {
        let (first, last) = num_hash_blocks.into_inner();
        for n in (first..=last.min(self.hash_block_hashes.len())).rev() {
            if let Some(blocks) = self.find_all(self.hash_block_hashes.get(n - 1)?)? {
                return Ok(Some((n * self.alignment, blocks)));
            }
        }
        Ok(None)
    }

    /// Returns the blocks at a position, one per group, if all groups have one there.
    pub(crate) fn find_block(&self, index: usize) -> Result<Option<Vec<BlockId>>> {
        self.find_all(self.hashes.get(index)?)
    }

    fn find_all(&self, hash: BlockHash) -> Result<Option<Vec<BlockId>>> {
        let find = |&group: &GroupId| self.pool.find(&CacheKey { hash, group });
        Ok(self.groups.iter().map(find).collect())
    }

    /// Returns whether a hit of `num_blocks` blocks is aligned.
    pub fn is_aligned(&self, num_blocks: usize) -> bool {
        (num_blocks * self.block_size).is_multiple_of(self.alignment)
    }

    /// Returns the largest number of blocks, at most `len`, for which a hit is aligned.
    pub(crate) fn aligned_len(&self, len: usize) -> usize {
        (0..=len).rev().find(|&len| self.is_aligned(len)).unwrap_or(0)
    }

    /// Returns a cursor per group, for looking up blocks one after the other.
    pub(crate) fn cursors(&self) -> Vec<PrefixCursor> {
        self.groups.iter().map(|&group| PrefixCursor::new(group)).collect()
    }

    /// Adds the blocks at `index` to `found`, one per group. Returns whether all groups have one
    /// there.
    pub(crate) fn find(
        &self,
        cursors: &mut [PrefixCursor],
        index: usize,
        found: &mut [Vec<BlockId>],
    ) -> Result<bool> {
        Ok(self.find_hash(cursors, self.hashes.get(index)?, found))
    }

    fn find_hash(
        &self,
        cursors: &mut [PrefixCursor],
        hash: BlockHash,
        found: &mut [Vec<BlockId>],
    ) -> bool {
        for i in 0..cursors.len() {
            let Some(block) = cursors[i].find(self.pool.index(), self.pool.blocks(), hash) else {
                for earlier in &mut found[..i] {
                    earlier.pop();
                }
                return false;
            };
            found[i].push(block);
        }
        true
    }

    /// Adds the blocks at `positions` to `found`, up to the first position where a group lacks the
    /// block.
    pub(crate) fn find_while_cached(
        &self,
        cursors: &mut [PrefixCursor],
        positions: Range<usize>,
        found: &mut [Vec<BlockId>],
    ) -> Result<()> {
        let mut hashes = Vec::with_capacity(positions.len().min(LARGEST_READ));
        let mut start = positions.start;
        let mut num_read = FIRST_READ;
        while start < positions.end {
            let stop = positions.end.min(start + num_read);
            hashes.clear();
            self.hashes.read(start..stop, &mut hashes)?;
            cursors
                .iter_mut()
                .for_each(|cursor| cursor.announce(self.pool.index(), self.pool.blocks(), &hashes));
            if !hashes.iter().all(|&hash| self.find_hash(cursors, hash, found)) {
                break;
            }
            start = stop;
            num_read = (num_read * 2).min(LARGEST_READ);
        }
        Ok(())
    }

    /// Returns the blocks of the longest cached prefix, one list per group.
    pub(crate) fn cached_prefix(&self) -> Result<Vec<Vec<BlockId>>> {
        let limit = self.max_blocks().min(self.hashes.len());
        if let Some(mut known) = self.known_prefix.and_then(RefCell::take) {
            known.iter_mut().for_each(|ids| ids.truncate(limit));
            return Ok(known);
        }
        let mut found = vec![Vec::new(); self.groups.len()];
        self.extend_prefix(limit, &mut found)?;
        Ok(found)
    }

    /// Lengthens a cached prefix, one list per group, to `limit` blocks or up to the first block
    /// that a group lacks. Returns the number of leading blocks found in the trie; 0 if the prefix
    /// was not empty.
    pub(crate) fn extend_prefix(&self, limit: usize, found: &mut [Vec<BlockId>]) -> Result<usize> {
        let num_in_trie = match found[0].is_empty() {
            true => self.read_trie_prefix(limit, found)?,
            false => 0,
        };
        let first = found[0].len();
        if first < limit {
            let after = |(&group, ids): (&GroupId, &Vec<BlockId>)| {
                PrefixCursor::after(group, ids.last().copied())
            };
            let mut cursors: Vec<_> = self.groups.iter().zip(&*found).map(after).collect();
            self.find_while_cached(&mut cursors, first..limit, found)?;
        }
        Ok(num_in_trie)
    }
}
