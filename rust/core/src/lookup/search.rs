//! Finds the longest hit on which all groups agree.
//!
//! Each group accepts the current length or shortens it. After a group has shortened it, the other
//! groups are searched again, until no group shortens it (the fixed point of vLLM PR 31707). The
//! search ends because the length never grows.

use super::hit::PrefixHit;
use super::prefix::CachedPrefix;
use super::spec_group::SpecGroup;
use crate::error::Result;
use crate::group::{Group, GroupHit, HitQuery, KnownPrefix};
use crate::pool::BlockPool;
use crate::request::{GroupBlocks, GroupHashes, HashSource};

/// One search over all groups.
#[derive(Clone, Copy)]
pub(crate) struct HitSearch<'a> {
    /// The pool.
    pub pool: &'a BlockPool,
    /// The groups.
    pub groups: &'a [Group],
    /// The groups by spec, in the order of the search.
    pub(crate) spec_groups: &'a [SpecGroup],
    /// The request's hashes.
    pub hashes: &'a dyn HashSource,
    /// Tokens per hash.
    pub hash_block_size: usize,
    /// Hits are multiples of this many tokens.
    pub hit_alignment: usize,
    /// The most tokens that a search can match, if it cannot match a block after the longest hit.
    pub(crate) bound: Option<usize>,
    /// The cached prefixes that are already known, in the order of `spec_groups`.
    pub(crate) known_prefixes: Option<&'a [KnownPrefix]>,
}

impl HitSearch<'_> {
    /// Returns the hit of a model with one group.
    pub(crate) fn unitary(&self, max_length: usize) -> Result<PrefixHit> {
        let hit = self.search(0, max_length, self.spec_groups[0].drops_eagle_block)?;
        Ok(PrefixHit::new(hit.length, hit.blocks))
    }

    /// Returns the hit on which all groups of a hybrid model agree.
    pub(crate) fn fixed_point(&self, max_length: usize) -> Result<PrefixHit> {
        let mut state = FixedPoint::new(self.spec_groups.len());
        let mut length = max_length;
        loop {
            let shorter = state.round(self, length)?;
            let is_settled = shorter >= length;
            length = length.min(shorter);
            if is_settled || self.is_settled_in_one_round() {
                break;
            }
        }
        Ok(state.into_hit(self, length))
    }

    /// Returns whether there are two specs, and for the first one every prefix of a hit is a hit.
    /// Then the second one can only shorten the first one's hit.
    fn is_settled_in_one_round(&self) -> bool {
        self.spec_groups.len() == 2 && self.spec_groups[0].is_prefix_closed
    }

    /// Returns the hit of each group on its own: blocks and lengths, per group.
    pub(crate) fn per_group(&self, max_length: usize) -> Result<(Vec<GroupBlocks>, Vec<usize>)> {
        let mut blocks = vec![GroupBlocks::default(); self.groups.len()];
        let mut lengths = vec![0; self.groups.len()];
        for (i, group) in self.spec_groups.iter().enumerate() {
            let max_length = self.search_length(group, max_length);
            let hit = self.search(i, max_length, group.drops_eagle_block)?;
            for (&id, found) in group.groups.iter().zip(hit.blocks) {
                blocks[usize::from(id)] = found;
                lengths[usize::from(id)] = hit.length;
            }
        }
        Ok((blocks, lengths))
    }

    /// Returns the length to search for. With EAGLE, the search is one block longer than the hit,
    /// because the last matching block is dropped.
    fn search_length(&self, group: &SpecGroup, max_length: usize) -> usize {
        if !group.drops_eagle_block || group.eagle_margin == 0 {
            return max_length;
        }
        let bound = self.bound.unwrap_or_else(|| self.hashes.len() * self.hash_block_size);
        max_length.saturating_add(group.eagle_margin).min(bound)
    }

    /// Searches the groups of `spec_groups[i]`.
    #[inline(always)]
    fn search(&self, i: usize, max_length: usize, drops_eagle_block: bool) -> Result<GroupHit> {
        let group = &self.spec_groups[i];
        let mut query = self.query(group, max_length, drops_eagle_block);
        let known = self.known_prefixes.filter(|_| group.is_prefix_closed);
        query.known_prefix = known.and_then(|known| known.get(i));
        self.groups[usize::from(group.groups[0])].kind().longest_hit(&query)
    }

    /// Updates the cached prefixes up to the end that a search for `max_length` can read. Only
    /// groups for which every prefix of a hit is a hit have such a prefix.
    pub(crate) fn update_prefixes(
        &self,
        prefixes: &mut [CachedPrefix],
        max_length: usize,
    ) -> Result<()> {
        for (group, prefix) in self.spec_groups.iter().zip(prefixes) {
            if group.is_prefix_closed {
                let max_length = self.search_length(group, max_length).max(max_length);
                prefix.update(&self.query(group, max_length, false))?;
            }
        }
        Ok(())
    }

    fn query<'a>(
        &'a self,
        group: &'a SpecGroup,
        max_length: usize,
        drops_eagle_block: bool,
    ) -> HitQuery<'a> {
        HitQuery {
            pool: self.pool,
            groups: &group.groups,
            hashes: GroupHashes::new(self.hashes, self.hash_block_size, group.block_size),
            hash_block_hashes: GroupHashes::new(
                self.hashes,
                self.hash_block_size,
                self.hash_block_size,
            ),
            block_size: group.block_size,
            max_length,
            drops_eagle_block,
            alignment: self.hit_alignment,
            known_prefix: None,
        }
    }
}

/// The hits of all groups so far.
struct FixedPoint {
    groups: Vec<Searched>,
    longest: usize,
}

/// The groups of a spec, as far as they were searched.
#[derive(Default)]
struct Searched {
    hit: Option<GroupHit>,
    /// Whether the EAGLE drop was already applied at the current length. It is applied once.
    is_drop_verified: bool,
}

impl FixedPoint {
    fn new(num_groups: usize) -> Self {
        Self { groups: (0..num_groups).map(|_| Searched::default()).collect(), longest: 0 }
    }

    /// Searches each group once. Each group starts from the length to which earlier groups cut
    /// `length`.
    fn round(&mut self, search: &HitSearch<'_>, length: usize) -> Result<usize> {
        let mut length = length;
        for (i, group) in search.spec_groups.iter().enumerate() {
            if let (Some(hit), true) = (&self.groups[i].hit, group.is_prefix_closed) {
                length = length.min(hit.length);
                continue;
            }
            length = self.search_group(search, i, length)?;
            self.longest = self.longest.max(length);
        }
        Ok(length)
    }

    fn search_group(&mut self, search: &HitSearch<'_>, i: usize, length: usize) -> Result<usize> {
        let group = &search.spec_groups[i];
        let drops_eagle_block = group.drops_eagle_block && !self.groups[i].is_drop_verified;
        let max_length =
            if drops_eagle_block { search.search_length(group, length) } else { length };
        // The first group of a prompt that is not cached leaves nothing for the others to search.
        let hit = match max_length {
            0 => GroupHit::default(),
            _ => search.search(i, max_length, drops_eagle_block)?,
        };
        if drops_eagle_block {
            self.groups[i].is_drop_verified = true;
        } else if hit.length < length {
            self.groups.iter_mut().for_each(|group| group.is_drop_verified = false);
        }
        let found = hit.length;
        self.groups[i].hit = Some(hit);
        Ok(found)
    }

    /// Returns the hit with the blocks of every group. Where every prefix of a hit is a hit, the
    /// blocks are cut to the final length.
    fn into_hit(self, search: &HitSearch<'_>, length: usize) -> PrefixHit {
        let mut blocks: Vec<_> = search.groups.iter().map(|_| GroupBlocks::default()).collect();
        for (group, searched) in search.spec_groups.iter().zip(self.groups) {
            let hit = searched.hit.unwrap_or_default();
            for (&id, mut found) in group.groups.iter().zip(hit.blocks) {
                if group.is_prefix_closed {
                    found.truncate(found.len().min(length.div_ceil(group.block_size)));
                }
                blocks[usize::from(id)] = found;
            }
        }
        let shared_prefix_boundary = if self.longest > length { self.longest } else { 0 };
        PrefixHit { shared_prefix_boundary, ..PrefixHit::new(length, blocks) }
    }
}
