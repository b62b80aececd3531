//! The attention kinds: what of a prefix a group needs to continue from it.
//!
//! A kind is one module with a type that implements [`AttentionKind`], and one line in the
//! registry below.

mod chunked_local;
mod full;
mod sliding_window;

use std::fmt::Debug;
use std::ops::Range;

use crate::block::{BlockHash, BlockId, GroupId};
use crate::chain_cursor::ChainCursor;
use crate::error::{Error, Result};
use crate::hashes::GroupHashes;
use crate::lookup_memo::CachedPrefix;
use crate::pool::BlockPool;
use crate::request::GroupBlocks;
use crate::retention::{Reach, ReachableBlocks};
use crate::spec::GroupSpec;

pub use chunked_local::ChunkedLocalAttention;
pub use full::FullAttention;
pub use sliding_window::SlidingWindowAttention;

/// Makes the kind that a spec describes, or says what is wrong with the spec.
type Build = fn(&GroupSpec) -> Result<Box<dyn AttentionKind>>;

const REGISTRY: [(&str, Build); 5] = [
    ("full_attention", FullAttention::build),
    ("mla_attention", FullAttention::build),
    ("sliding_window", SlidingWindowAttention::build),
    ("sliding_window_mla", SlidingWindowAttention::build),
    ("chunked_local_attention", ChunkedLocalAttention::build),
];

/// The names of the supported kinds.
pub fn supported_kinds() -> Vec<&'static str> {
    REGISTRY.iter().map(|(name, _)| *name).collect()
}

/// Makes the kind that a spec describes. Refuses unknown kinds by name.
pub fn attention_kind(spec: &GroupSpec) -> Result<Box<dyn AttentionKind>> {
    let (_, build) = REGISTRY
        .iter()
        .find(|(name, _)| *name == spec.kind)
        .ok_or_else(|| Error::UnsupportedGroup { kind: spec.kind.clone() })?;
    GroupSpec::positive("block_size", spec.block_size)?;
    build(spec)
}

/// What sets one attention kind apart. All lengths and positions are in tokens unless they are
/// called blocks.
pub trait AttentionKind: Debug + Send + Sync {
    /// The longest prefix that the group can continue from.
    fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit>;

    /// Whether every prefix of a hit is a hit: a longer hit is then cut instead of searched anew.
    fn is_prefix_closed(&self) -> bool {
        false
    }

    /// Whether the group has a sliding window, which retention intervals are about.
    fn has_sliding_window(&self) -> bool {
        false
    }

    /// Leading tokens that the next token after `num_computed_tokens` does not attend to.
    fn num_skipped_tokens(&self, _num_computed_tokens: usize) -> usize {
        0
    }

    /// Which blocks of a range are worth caching.
    fn reachable_blocks(&self, _reach: &Reach<'_>) -> ReachableBlocks {
        ReachableBlocks::All
    }

    /// The most blocks that a request holds at once, for kinds that give blocks back as they go.
    fn max_admission_blocks(
        &self,
        _max_in_flight_tokens: usize,
        _max_model_len: usize,
    ) -> Option<usize> {
        None
    }

    /// Whether the end of the prompt is cached although it ends inside a block.
    fn caches_partial_tail(&self) -> bool {
        false
    }

    /// Checks that the kind can be looked up at hits of this alignment, with or without the drop
    /// of the last block that EAGLE needs.
    fn check_lookup(&self, _alignment: usize, _drops_eagle_block: bool) -> Result<()> {
        Ok(())
    }
}

/// Hashes are read in pieces: small ones at first, since most look-ups end early.
const FIRST_READ: usize = 4;
const LARGEST_READ: usize = 256;

/// One look-up in groups that share a spec.
#[derive(Clone, Copy, Debug)]
pub struct HitQuery<'a> {
    /// The pool.
    pub pool: &'a BlockPool,
    /// The groups; a block is hit only if all of them have it.
    pub groups: &'a [GroupId],
    /// The request's hashes at the granularity of these groups.
    pub hashes: GroupHashes<'a>,
    /// Tokens per block.
    pub block_size: usize,
    /// Upper bound of the hit.
    pub max_length: usize,
    /// Whether the last matched block is dropped, so that its hidden states are recomputed.
    pub drop_eagle_block: bool,
    /// The hit is a multiple of this.
    pub alignment: usize,
    /// The cached prefix as far as anybody can ask for it, if it is known already.
    pub known_prefix: Option<&'a CachedPrefix>,
}

/// A hit: its length and, for each group of the query, the blocks that cover it. Blocks that the
/// group does not need are null.
#[derive(Clone, Debug, Default)]
pub struct GroupHit {
    /// Length of the hit, in tokens.
    pub length: usize,
    /// One list per group of the query.
    pub blocks: Vec<GroupBlocks>,
}

impl HitQuery<'_> {
    /// The most blocks that the hit can have.
    pub fn max_blocks(&self) -> usize {
        self.max_length / self.block_size
    }

    /// Whether a hit of so many blocks is aligned.
    pub fn is_aligned(&self, num_blocks: usize) -> bool {
        (num_blocks * self.block_size).is_multiple_of(self.alignment)
    }

    /// Cursors to look one block after the other up.
    pub fn cursors(&self) -> Vec<ChainCursor> {
        self.groups.iter().map(|&group| ChainCursor::new(group)).collect()
    }

    /// Adds the blocks at `index` to `found`, one per group, if all groups have it.
    pub fn find(
        &self,
        cursors: &mut [ChainCursor],
        index: usize,
        found: &mut [Vec<BlockId>],
    ) -> Result<bool> {
        Ok(self.find_hash(cursors, self.hashes.get(index)?, found))
    }

    fn find_hash(
        &self,
        cursors: &mut [ChainCursor],
        hash: BlockHash,
        found: &mut [Vec<BlockId>],
    ) -> bool {
        for i in 0..cursors.len() {
            let Some(block) = cursors[i].find(self.pool, hash) else {
                for earlier in &mut found[..i] {
                    earlier.pop();
                }
                return false;
            };
            found[i].push(block);
        }
        true
    }

    /// Adds the blocks at `positions` to `found`, up to the first that a group lacks.
    pub fn find_while_cached(
        &self,
        cursors: &mut [ChainCursor],
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
            cursors.iter_mut().for_each(|cursor| cursor.announce(self.pool, &hashes));
            if !hashes.iter().all(|&hash| self.find_hash(cursors, hash, found)) {
                break;
            }
            start = stop;
            num_read = (num_read * 2).min(LARGEST_READ);
        }
        Ok(())
    }

    /// The blocks of the longest cached prefix, one list per group.
    pub fn cached_prefix(&self) -> Result<Vec<Vec<BlockId>>> {
        let limit = self.max_blocks().min(self.hashes.len());
        if let Some(known) = self.known_prefix {
            return Ok(known.first(limit));
        }
        let mut found = vec![Vec::new(); self.groups.len()];
        self.find_while_cached(&mut self.cursors(), 0..limit, &mut found)?;
        Ok(found)
    }
}
