//! How far a request is cached: which of its computed tokens a later hit could match.

use super::Manager;
use super::plan::Plan;
use super::policy::Policy;
use super::request_turn::RequestTurn;
use crate::error::{Error, Result};
use crate::group::{Asked, Group, Reach, ReachableBlocks};
use crate::request::{GroupBlocks, GroupState, RequestId, RequestView};

impl Manager {
    /// Caches what of a request is computed up to `num_computed_tokens`.
    pub fn cache_blocks(
        &mut self,
        request: &RequestView<'_>,
        num_computed_tokens: usize,
    ) -> Result<()> {
        let Self { config, plan, groups, requests, pool, orders, .. } = self;
        if !config.enable_caching {
            return Ok(());
        }
        let is_hybrid = groups.len() > 1;
        let held = requests.get_mut(&request.id);
        let state = |group: &Group| held.as_ref().map(|held| &held.groups[usize::from(group.id)]);
        for group in groups.iter().filter(|group| group.is_cacheable) {
            plan.check_blocks_to_cache(
                group,
                state(group),
                request,
                is_hybrid,
                num_computed_tokens,
            )?;
            let asked = Asked { request: request.id, state: state(group), pool };
            let num_tokens = plan.num_cacheable_tokens(group, is_hybrid, num_computed_tokens);
            group.check_cache(&asked, &plan.rules, request, num_tokens)?;
        }
        if let Some(held) = held {
            let mut turn = RequestTurn { id: request.id, groups, held, pool, orders };
            turn.cache(plan, request, num_computed_tokens);
        }
        Ok(())
    }

    /// Keeps states and window blocks at another interval from now on; see
    /// [`super::Policy::retention_interval`].
    pub fn set_retention_interval(&mut self, interval: Option<usize>) -> Result<()> {
        let Self { config, plan, groups, .. } = self;
        let policy = Policy { retention_interval: interval, ..config.policy.clone() };
        let is_sparse = groups.iter().any(|group| group.kind().is_sparse());
        policy.validate(is_sparse, plan.scheduler_block_size)?;
        config.policy = policy;
        plan.rules.retention_interval = interval;
        groups.iter_mut().for_each(|group| group.learn(&plan.rules));
        Ok(())
    }

    /// The first hash of a request's chain that an allocation or [`Self::cache_blocks`] may read,
    /// if the request adopts the blocks `hit`.
    pub fn first_hash_needed(
        &self,
        request: RequestId,
        num_prompt_tokens: usize,
        num_computed_tokens: usize,
        num_hashes: usize,
        hit: &[GroupBlocks],
    ) -> usize {
        let held = self.requests.get(&request);
        let cached_tokens = |group: &Group| {
            let id = usize::from(group.id);
            let state = held.map(|held| &held.groups[id]);
            let adopted = hit.get(id).map_or(0, GroupBlocks::len);
            let cached = state.and_then(|state| state.num_cached_blocks).unwrap_or(adopted);
            // The block in which a hit ends is cached once more when it is full, and a state may be
            // found at another boundary than where it was cached before.
            match (group.is_state, group.has_partial_hits) {
                (true, _) => (cached.saturating_sub(1) * group.block_size).min(num_computed_tokens),
                (false, true) => cached.saturating_sub(1) * group.block_size,
                (false, false) => cached * group.block_size,
            }
        };
        let cacheable = self.groups.iter().filter(|group| group.is_cacheable);
        let first = cacheable.map(cached_tokens).min().unwrap_or(0).min(num_prompt_tokens);
        // The end of the prompt is cached by itself, and events name the hash before what is
        // stored: at most three hashes below the last one of the prompt, and as many more as a
        // hash covers tokens behind its block.
        let size = self.plan.hash_block_size;
        let below = 3 + self.plan.rules.num_hash_lookahead_tokens.div_ceil(size);
        (first / size).min(num_hashes).saturating_sub(below)
    }

    /// How many hashes of a request's chain an allocation may read after which `num_tokens` are
    /// computed.
    pub fn num_hashes_needed(&self, num_tokens: usize) -> usize {
        // A state may be cached where an earlier step ended.
        match self.groups.iter().any(|group| group.is_state) {
            true => usize::MAX,
            false => num_tokens.div_ceil(self.plan.hash_block_size),
        }
    }
}

impl RequestTurn<'_> {
    /// Caches what of the request is computed up to `num_computed_tokens`.
    pub fn cache(&mut self, plan: &Plan, request: &RequestView<'_>, num_computed_tokens: usize) {
        let is_hybrid = self.groups.len() > 1;
        self.pool.keep_hash_cache(plan.shares_hashes);
        self.each(|group, turn| {
            if group.is_cacheable {
                let num_tokens = plan.num_cacheable_tokens(group, is_hybrid, num_computed_tokens);
                group.cache(turn, &plan.rules, request, num_tokens);
            }
        })
        .for_each(drop);
        self.pool.keep_hash_cache(false);
    }
}

impl Plan {
    fn check_blocks_to_cache(
        &self,
        group: &Group,
        state: Option<&GroupState>,
        request: &RequestView<'_>,
        is_hybrid: bool,
        num_computed_tokens: usize,
    ) -> Result<()> {
        let num_tokens = self.num_cacheable_tokens(group, is_hybrid, num_computed_tokens);
        let end = self.rules.num_full_blocks(group, request, num_tokens);
        let start = state.and_then(|state| state.num_cached_blocks).unwrap_or(0);
        let allocated = state.map_or(0, |state| state.blocks.len());
        if end <= start.max(allocated) {
            return Ok(());
        }
        let message = format!(
            "{num_computed_tokens} tokens are to be cached, but the request has {allocated} \
             blocks instead of {end} in group {}; allocate slots first",
            group.id
        );
        let range = (start, end);
        let reachable = |reach: &Reach<'_>| group.kind().reachable_blocks(reach);
        Err(match self.rules.reachable_blocks(group, request, range, reachable) {
            ReachableBlocks::All => Error::OutOfRange(message),
            ReachableBlocks::Runs(_) | ReachableBlocks::Graded(_) => Error::Precondition(message),
        })
    }

    /// How much of a computed prefix a later hit could match: up to the last aligned boundary,
    /// and with EAGLE one block more, but never tokens that may be computed again.
    pub(super) fn num_cacheable_tokens(
        &self,
        group: &Group,
        is_hybrid: bool,
        num_computed_tokens: usize,
    ) -> usize {
        let settled = num_computed_tokens.saturating_sub(self.num_reprefillable_tokens);
        if !is_hybrid {
            return settled;
        }
        let align = |tokens: usize| match self.rules.has_partial_hits {
            true => tokens,
            false => tokens - tokens % self.scheduler_block_size,
        };
        let aligned = align(num_computed_tokens);
        match group.drops_eagle_block && aligned > 0 {
            true => settled.min(align(settled).saturating_add(group.block_size)),
            false => aligned,
        }
    }
}
