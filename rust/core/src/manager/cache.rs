//! How far a request is cached: which of its computed tokens a later hit could match.

use super::Manager;
use crate::block::{GroupId, NULL_BLOCK};
use crate::caching::CacheTarget;
use crate::error::{Error, Result};
use crate::request::{GroupBlocks, RequestBlocks, RequestId, RequestView};
use crate::retention::{Reach, ReachableBlocks, replay_boundaries};

impl Manager {
    /// Caches what of a request is computed up to `num_computed_tokens`.
    pub fn cache_blocks(
        &mut self,
        request: &RequestView<'_>,
        num_computed_tokens: usize,
    ) -> Result<()> {
        if !self.config.enable_caching {
            return Ok(());
        }
        for group in 0..self.config.groups.len() {
            if self.config.groups[group].prefix_cacheable {
                self.check_blocks_to_cache(group, request, num_computed_tokens)?;
            }
        }
        self.cache_up_to(request, num_computed_tokens);
        Ok(())
    }

    /// The first hash of a request's chain that an allocation or [`Self::cache_blocks`] may read,
    /// if the request adopts the blocks `hit`.
    pub fn first_hash_needed(
        &self,
        request: RequestId,
        num_prompt_tokens: usize,
        num_hashes: usize,
        hit: &[GroupBlocks],
    ) -> usize {
        let held = self.requests.get(&request);
        let cached_tokens = |group: usize| {
            let state = held.map(|held| &held.groups[group]);
            let adopted = hit.get(group).map_or(0, GroupBlocks::len);
            let cached = state.and_then(|state| state.num_cached_blocks).unwrap_or(adopted);
            cached * self.config.groups[group].block_size
        };
        let cacheable = (0..self.config.groups.len())
            .filter(|&group| self.config.groups[group].prefix_cacheable);
        let first = cacheable.map(cached_tokens).min().unwrap_or(0).min(num_prompt_tokens);
        // The end of the prompt is cached by itself, and events name the hash before what is
        // stored: at most three hashes below the last one of the prompt.
        (first / self.plan.hash_block_size).min(num_hashes).saturating_sub(3)
    }

    fn check_blocks_to_cache(
        &self,
        group: usize,
        request: &RequestView<'_>,
        num_computed_tokens: usize,
    ) -> Result<()> {
        let num_tokens = self.num_cacheable_tokens(group, num_computed_tokens);
        let end = self.num_full_blocks(group, request, num_tokens);
        let state = self.requests.get(&request.id).map(|held| &held.groups[group]);
        let start = state.and_then(|state| state.num_cached_blocks).unwrap_or(0);
        let allocated = state.map_or(0, |state| state.blocks.len());
        if end <= start.max(allocated) {
            return Ok(());
        }
        let message = format!(
            "{num_computed_tokens} tokens are to be cached, but the request has {allocated} \
             blocks instead of {end} in group {group}; allocate slots first"
        );
        Err(match self.reachable_blocks(group, request, (start, end)) {
            ReachableBlocks::All => Error::OutOfRange(message),
            ReachableBlocks::Runs(_) => Error::Precondition(message),
        })
    }

    fn num_full_blocks(&self, group: usize, request: &RequestView<'_>, num_tokens: usize) -> usize {
        let num_hashed = request.hashes.chain_len() * self.plan.hash_block_size;
        num_tokens.min(num_hashed) / self.config.groups[group].block_size
    }

    pub(super) fn cache_up_to(&mut self, request: &RequestView<'_>, num_computed_tokens: usize) {
        if !self.config.enable_caching {
            return;
        }
        let Some(mut held) = self.requests.remove(&request.id) else { return };
        for group in 0..self.config.groups.len() {
            if self.config.groups[group].prefix_cacheable {
                let num_tokens = self.num_cacheable_tokens(group, num_computed_tokens);
                self.cache_full_blocks(group, request, &mut held, num_tokens);
                self.cache_partial_tail(group, request, &held, num_tokens);
            }
        }
        self.requests.insert(request.id, held);
    }

    /// How much of a computed prefix a later hit could match: up to the last aligned boundary,
    /// and with EAGLE one block more, but never tokens that may be computed again.
    fn num_cacheable_tokens(&self, group: usize, num_computed_tokens: usize) -> usize {
        let settled = num_computed_tokens.saturating_sub(self.plan.num_reprefillable_tokens);
        if !self.is_hybrid() {
            return settled;
        }
        let align = |tokens: usize| tokens - tokens % self.plan.scheduler_block_size;
        let aligned = align(num_computed_tokens);
        match self.plan.drops_eagle_block[group] && aligned > 0 {
            true => {
                settled.min(align(settled).saturating_add(self.config.groups[group].block_size))
            }
            false => aligned,
        }
    }

    fn cache_full_blocks(
        &mut self,
        group: usize,
        request: &RequestView<'_>,
        held: &mut RequestBlocks,
        num_tokens: usize,
    ) {
        let state = &mut held.groups[group];
        let start = state.num_cached_blocks.unwrap_or(0);
        let end = self.num_full_blocks(group, request, num_tokens);
        if start >= end {
            return;
        }
        let reachable = self.reachable_blocks(group, request, (start, end));
        let target = self.cache_target(request, group, &state.blocks);
        target.cache_full_blocks(&mut self.pool, start, end, reachable);
        state.num_cached_blocks = Some(end);
    }

    fn reachable_blocks(
        &self,
        group: usize,
        request: &RequestView<'_>,
        range: (usize, usize),
    ) -> ReachableBlocks {
        if !self.config.policy.reachable_block_mask {
            return ReachableBlocks::All;
        }
        let boundaries = self.resume_boundaries(group, request);
        self.plan.kinds[group].reachable_blocks(&Reach {
            range,
            alignment: self.plan.scheduler_block_size,
            use_eagle: self.plan.drops_eagle_block[group],
            retention_interval: self.config.policy.retention_interval,
            boundaries: &boundaries,
        })
    }

    /// Token positions at which a later request is known to resume: replays of the prompt and the
    /// shared-prefix junction.
    fn resume_boundaries(&self, group: usize, request: &RequestView<'_>) -> Vec<usize> {
        if self.config.policy.retention_interval.is_none() {
            return Vec::new();
        }
        let alignment = self.plan.scheduler_block_size;
        let mut boundaries =
            replay_boundaries(request.num_prompt_tokens, alignment, self.plan.any_group_drops);
        let junction = request.shared_prefix_boundary;
        if junction > 0 {
            boundaries.push(junction);
            // A request that leaves the prefix right at the junction lacks the block past it, so
            // with EAGLE its hit ends one block lower.
            let lower = junction.checked_sub(self.config.groups[group].block_size);
            let keeps_lower =
                self.plan.drops_eagle_block[group] && self.config.keep_tail_below_junction;
            boundaries.extend(lower.filter(|_| keeps_lower));
        }
        boundaries
    }

    /// Caches the end of the prompt inside a block that is larger than a hash block.
    fn cache_partial_tail(
        &mut self,
        group: usize,
        request: &RequestView<'_>,
        held: &RequestBlocks,
        num_tokens: usize,
    ) {
        let block_size = self.config.groups[group].block_size;
        let hash_block_size = self.plan.hash_block_size;
        if block_size == hash_block_size || !self.plan.kinds[group].caches_partial_tail() {
            return;
        }
        // A repeated prompt matches all but its last token; EAGLE reads all of it.
        let recomputed = usize::from(!self.plan.drops_eagle_block[group]);
        let limit = request.num_prompt_tokens.saturating_sub(recomputed) / hash_block_size;
        let boundary = limit.min(request.hashes.chain_len()) * hash_block_size;
        if boundary == 0 || boundary > num_tokens || boundary.is_multiple_of(block_size) {
            return;
        }
        let table = &held.groups[group].blocks;
        match table.get(boundary / block_size) {
            None | Some(NULL_BLOCK) => {}
            Some(block) => self.cache_target(request, group, table).cache_partial_block(
                &mut self.pool,
                block,
                boundary,
            ),
        }
    }

    pub(super) fn cache_target<'a>(
        &self,
        request: &'a RequestView<'a>,
        group: usize,
        blocks: &'a GroupBlocks,
    ) -> CacheTarget<'a> {
        CacheTarget {
            request,
            group: group as GroupId,
            block_size: self.config.groups[group].block_size,
            hash_block_size: self.plan.hash_block_size,
            blocks,
        }
    }
}
