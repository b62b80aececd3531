//! Looks up the longest cached prefix of a request.

use super::Manager;
use crate::error::{Error, Result};
use crate::group::{CacheTarget, Group};
use crate::lookup::{
    CachedPrefix, ChainEnd, DeepestHit, HitSearch, LookupMemo, LookupMemos, PrefixHit,
};
use crate::request::{GroupBlocks, HashSource, RequestId, RequestView};

impl Manager {
    /// Returns the longest cached prefix of a request, at most `max_length` tokens long. If the
    /// request is still waiting, a repeated call reads only the changes since the last call.
    pub fn get_computed_blocks(
        &mut self,
        request: RequestId,
        hashes: &dyn HashSource,
        max_length: usize,
    ) -> Result<PrefixHit> {
        if hashes.len() < LookupMemos::MIN_HASHES {
            return self.find_longest_hit(hashes, max_length);
        }
        let version = self.pool.index().version();
        let chain = ChainEnd::of(hashes)?;
        let prefixes = match self.memos.take(request, hashes)? {
            Some(memo) if memo.is_current(&chain, max_length, version) => {
                let hit = memo.hit.clone();
                self.memos.put(request, memo);
                return Ok(hit);
            }
            Some(memo) if !memo.prefixes.is_empty() => memo.prefixes,
            _ => self.layout.spec_groups.iter().map(|_| CachedPrefix::default()).collect(),
        };
        self.look_up_and_remember(request, hashes, chain, max_length, prefixes)
    }

    fn look_up_and_remember(
        &mut self,
        request: RequestId,
        hashes: &dyn HashSource,
        chain: ChainEnd,
        max_length: usize,
        mut prefixes: Vec<CachedPrefix>,
    ) -> Result<PrefixHit> {
        self.pool.index_mut().removals_mut().keep(true);
        self.hit_search(hashes, max_length).update_prefixes(&mut prefixes, max_length)?;
        let known: Vec<_> = match hashes.is_chain() && self.add_to_trie(&mut prefixes) {
            // The trie also serves the next look-up.
            true => {
                std::mem::take(&mut prefixes).into_iter().map(CachedPrefix::into_known).collect()
            }
            false => prefixes.iter().map(CachedPrefix::known).collect(),
        };
        let search =
            HitSearch { known_prefixes: Some(&known), ..self.hit_search(hashes, max_length) };
        let hit = self.search(&search, max_length)?;
        let version = self.pool.index().version();
        let memo = LookupMemo::new(chain, max_length, version, hit.clone(), prefixes);
        self.memos.put(request, memo);
        self.pool.index_mut().removals_mut().keep(self.memos.has_prefixes());
        Ok(hit)
    }

    /// Adds cached prefixes to the prefix trie. Returns whether all of them are in it then.
    fn add_to_trie(&mut self, prefixes: &mut [CachedPrefix]) -> bool {
        let Self { layout, pool, .. } = self;
        let closed = layout.spec_groups.iter().zip(prefixes).filter(|(g, _)| g.is_prefix_closed);
        let added = closed.map(|(group, prefix)| prefix.add_to_trie(pool, group.block_size));
        added.fold(true, |all, added| all & added)
    }

    /// Removes the memo of a request that ends while it waits. For other requests, admission and
    /// release remove it.
    pub fn forget_lookup(&mut self, request: RequestId) {
        self.memos.forget(request, self.pool.index_mut().removals_mut());
    }

    /// Returns the longest prefix of a chain of hashes from which every group can continue, at most
    /// `max_length` tokens long.
    pub fn find_longest_hit(
        &self,
        hashes: &dyn HashSource,
        max_length: usize,
    ) -> Result<PrefixHit> {
        self.search(&self.hit_search(hashes, max_length), max_length)
    }

    fn search(&self, search: &HitSearch<'_>, max_length: usize) -> Result<PrefixHit> {
        match self.layout.spec_groups.is_empty() {
            true => Ok(PrefixHit::new(0, self.no_blocks())),
            false if self.is_hybrid() => search.fixed_point(max_length),
            false => search.unitary(max_length),
        }
    }

    /// Returns the longest prefix from which each group alone can continue: the blocks and the
    /// length in tokens, for every group.
    pub fn find_longest_hit_per_group(
        &self,
        hashes: &dyn HashSource,
        max_length: usize,
    ) -> Result<(Vec<GroupBlocks>, Vec<usize>)> {
        self.hit_search(hashes, max_length).per_group(max_length)
    }

    /// Returns the longest prefix from which the full-attention groups can continue, for a request
    /// whose missing states a connector can bring.
    ///
    /// Returns `None` if the groups must agree on a hit: in a model without states, or if another
    /// group's hit is longer than full attention's.
    pub fn find_deepest_hit(
        &self,
        hashes: &dyn HashSource,
        max_length: usize,
    ) -> Result<Option<DeepestHit>> {
        let has_states = self.groups.iter().any(|group| group.is_state);
        let full = self.layout.spec_groups.first().filter(|group| group.is_prefix_closed);
        let Some(full) = full.filter(|_| has_states && self.is_hybrid()) else { return Ok(None) };
        let (blocks, lengths) = self.find_longest_hit_per_group(hashes, max_length)?;
        let length = lengths[usize::from(full.groups[0])];
        if lengths.iter().any(|&other| other > length) {
            return Ok(None);
        }
        let is_diverged = lengths.iter().any(|&other| other < length);
        Ok(Some(DeepestHit { blocks, length, is_diverged }))
    }

    fn hit_search<'a>(&'a self, hashes: &'a dyn HashSource, max_length: usize) -> HitSearch<'a> {
        let rules = self.retention.rules();
        HitSearch {
            pool: &self.pool,
            groups: &self.groups,
            spec_groups: &self.layout.spec_groups,
            hashes,
            hash_block_size: rules.hash_block_size,
            hit_alignment: self.layout.hit_alignment,
            bound: rules.older.bounds_proofs_by_hit.then_some(max_length),
            known_prefixes: None,
        }
    }

    /// Returns a hit without blocks.
    pub fn no_blocks(&self) -> Vec<GroupBlocks> {
        vec![GroupBlocks::default(); self.groups.len()]
    }

    /// Returns a hit, one table per group, cut to its first `num_computed_tokens` tokens. Returns
    /// [`Error::Precondition`] if they are not a multiple of every block size or exceed the hit.
    pub fn truncated(
        &self,
        hit: &[GroupBlocks],
        num_computed_tokens: usize,
    ) -> Result<Vec<GroupBlocks>> {
        if hit.len() != self.groups.len() {
            return Err(Error::Request(format!(
                "a hit of {} groups cannot be cut; this manager has {}",
                hit.len(),
                self.groups.len()
            )));
        }
        let cut = |(group, blocks): (&Group, &GroupBlocks)| {
            let mut blocks = blocks.clone();
            let is_aligned = num_computed_tokens.is_multiple_of(group.block_size);
            // The block size of an uncached group need not divide the length of a hit.
            let is_cut = group.is_cacheable || !group.covers_tokens;
            let len = match is_cut {
                true if is_aligned => Some(num_computed_tokens / group.block_size),
                true => None,
                false => Some(0).filter(|_| blocks.is_empty()),
            };
            // A connector can bring a state that is missing here.
            let is_held = |&len: &usize| group.is_state || len <= blocks.len();
            let Some(len) = len.filter(is_held).map(|len| len.min(blocks.len())) else {
                return Err(Error::Precondition(format!(
                    "a hit of {} blocks of {} tokens cannot be cut to {num_computed_tokens} \
                     tokens. Give a multiple of the block size within the hit",
                    blocks.len(),
                    group.block_size
                )));
            };
            blocks.truncate(len);
            Ok(blocks)
        };
        self.groups.iter().zip(hit).map(cut).collect()
    }

    /// Adds events that report the blocks of a hit as stored, for observers that keep no state.
    pub fn report_hit(&mut self, request: &RequestView<'_>, hit: &PrefixHit) -> Result<()> {
        if hit.length == 0 || !self.pool.index().events().is_kept() {
            return Ok(());
        }
        let size = self.retention.rules().hash_block_size;
        let reported = || self.groups.iter().zip(&*hit.blocks).filter(|(_, b)| !b.is_empty());
        // As in vLLM, a block counts as long as one rank's share of it.
        let target = |group: &Group, blocks| CacheTarget {
            block_size: group.spec.block_size,
            ..CacheTarget::new(group, size, request, blocks)
        };
        for (group, blocks) in reported() {
            if !group.spec.block_size.is_multiple_of(size) {
                return Err(Error::Precondition(format!(
                    "hits of group {} cannot be reported: a rank's share of a block has {} tokens, \
                     which is not a multiple of the hash block size {size}",
                    group.id, group.spec.block_size
                )));
            }
            target(group, blocks).require_hashes(blocks.len())?;
        }
        for (group, blocks) in reported() {
            target(group, blocks).report_cached_blocks(&mut self.pool, blocks.len());
        }
        Ok(())
    }
}
