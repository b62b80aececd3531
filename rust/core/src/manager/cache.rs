//! Caches full blocks: the computed tokens of a request that a later hit can match.

use super::Manager;
use super::context::RequestContext;
use crate::error::{Error, Result};
use crate::group::{Group, GroupCaching, ReadContext};
use crate::request::{GroupBlocks, HeldBlocks, RequestId, RequestView};
use crate::retention::{ActivePolicy, CacheRules, RetentionMask};

impl Manager {
    /// Caches the blocks of a request that are full after `num_computed_tokens` are computed. If a
    /// group lacks blocks for these tokens, returns an error and caches nothing.
    pub fn cache_blocks(
        &mut self,
        request: &RequestView<'_>,
        num_computed_tokens: usize,
    ) -> Result<()> {
        let Self { config, groups, requests, pool, commands, retention, .. } = self;
        if !config.enable_caching {
            return Ok(());
        }
        let held = requests.get_mut(&request.id);
        let in_group =
            |group: &Group| held.as_ref().map(|held| &held.groups[usize::from(group.id)]);
        for group in groups.iter().filter(|group| group.is_cacheable) {
            let num_tokens = num_cacheable_tokens(retention.rules(), group, num_computed_tokens);
            let held = in_group(group);
            check_blocks_to_cache(
                GroupCaching { data: group, retention, request },
                held,
                num_computed_tokens,
                num_tokens,
            )?;
            if let Some(states) = group.states() {
                let read = ReadContext { request: request.id, held, pool, retention };
                states.check_cache(group, &read, request, num_tokens)?;
            }
        }
        if let Some(held) = held {
            let mut context = RequestContext { id: request.id, groups, held, pool, commands };
            context.cache(retention, request, num_computed_tokens);
        }
        Ok(())
    }

    /// Returns how many tokens of a request's prefix every cacheable group has cached.
    pub fn estimate_cached_tokens(&self, request: RequestId) -> Result<usize> {
        let held = self.blocks_of(request)?;
        let blocks = self.pool.blocks();
        let cached = |table: &GroupBlocks| {
            let lengths = table.iter_owned_rev().filter_map(|block| blocks.hash_num_tokens(block));
            lengths.max().unwrap_or(0)
        };
        let groups = self.groups.iter().zip(&held.groups);
        let cacheable = groups.filter(|(group, _)| group.is_cacheable);
        Ok(cacheable.map(|(_, held)| cached(&held.blocks)).min().unwrap_or(0))
    }

    /// Returns the index of the first hash of a request that an allocation or
    /// [`Self::cache_blocks`] can read, if the request attaches the blocks of `hit`.
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
            let in_group = held.map(|held| &held.groups[id]);
            let attached = hit.get(id).map_or(0, GroupBlocks::len);
            let cached =
                in_group.and_then(|in_group| in_group.num_cached_blocks).unwrap_or(attached);
            // The block in which a hit ends is cached again when it is full. A state can be hit at
            // another boundary than where it was cached.
            match (group.is_state, group.has_partial_hits) {
                (true, _) => (cached.saturating_sub(1) * group.block_size).min(num_computed_tokens),
                (false, true) => cached.saturating_sub(1) * group.block_size,
                (false, false) => cached * group.block_size,
            }
        };
        let cacheable = self.groups.iter().filter(|group| group.is_cacheable);
        let first = cacheable.map(cached_tokens).min().unwrap_or(0).min(num_prompt_tokens);
        // The end of the prompt is cached separately, and events name the hash before the stored
        // ones. So an allocation reads at most three hashes before the prompt's last one. It reads
        // more if a hash covers tokens after its block.
        let size = self.retention.rules().hash_block_size;
        let below = 3 + self.retention.rules().num_hash_lookahead_tokens.div_ceil(size);
        (first / size).min(num_hashes).saturating_sub(below)
    }

    /// Returns how many leading hashes an allocation can read that ends with `num_tokens` computed
    /// tokens.
    pub fn num_hashes_needed(&self, num_tokens: usize) -> usize {
        // A state can be cached at the end of an earlier step.
        match self.groups.iter().any(|group| group.is_state) {
            true => usize::MAX,
            false => num_tokens.div_ceil(self.retention.rules().hash_block_size),
        }
    }
}

impl RequestContext<'_> {
    /// Caches the blocks that are full after `num_computed_tokens` are computed.
    pub(super) fn cache(
        &mut self,
        retention: &ActivePolicy,
        request: &RequestView<'_>,
        num_computed_tokens: usize,
    ) {
        self.pool.index_mut().hash_cache_mut().keep(retention.rules().shares_hashes);
        self.each(|group, context| {
            if group.is_cacheable {
                let num_tokens =
                    num_cacheable_tokens(retention.rules(), group, num_computed_tokens);
                group.cache(context, retention, request, num_tokens);
            }
        })
        .for_each(drop);
        self.pool.index_mut().hash_cache_mut().keep(false);
    }
}

/// Returns how many computed tokens of a request a later hit can match in a group: the tokens up to
/// the last aligned boundary, with EAGLE one block more. Tokens that may be computed again do not
/// count.
pub(super) fn num_cacheable_tokens(
    rules: &CacheRules,
    group: &Group,
    num_computed_tokens: usize,
) -> usize {
    let settled = num_computed_tokens.saturating_sub(rules.num_reprefillable_tokens);
    if !rules.is_hybrid {
        return settled;
    }
    let align = |tokens: usize| match rules.has_partial_hits {
        true => tokens,
        false => tokens - tokens % rules.scheduler_block_size,
    };
    let aligned = align(num_computed_tokens);
    match group.drops_eagle_block && aligned > 0 {
        true => settled.min(align(settled).saturating_add(group.block_size)),
        false => aligned,
    }
}

/// Returns the least number of computed tokens at which [`num_cacheable_tokens`] is `num_tokens` or
/// more.
pub(super) fn least_to_cache(rules: &CacheRules, group: &Group, num_tokens: usize) -> usize {
    let align = |tokens: usize| match !rules.is_hybrid || rules.has_partial_hits {
        true => tokens,
        false => tokens.next_multiple_of(rules.scheduler_block_size),
    };
    match (rules.is_hybrid, group.drops_eagle_block) {
        (false, _) => num_tokens + rules.num_reprefillable_tokens,
        (true, false) => align(num_tokens),
        (true, true) => {
            let settled = num_tokens.max(align(num_tokens.saturating_sub(group.block_size)));
            (settled + rules.num_reprefillable_tokens).max(align(1))
        }
    }
}

/// Checks that a request has blocks in a group for the `num_tokens` of its computed tokens that
/// will be cached.
fn check_blocks_to_cache(
    caching: GroupCaching<'_>,
    in_group: Option<&HeldBlocks>,
    num_computed_tokens: usize,
    num_tokens: usize,
) -> Result<()> {
    let GroupCaching { data, retention, request } = caching;
    let end = caching.num_full_blocks(num_tokens);
    let start = in_group.and_then(|in_group| in_group.num_cached_blocks).unwrap_or(0);
    let allocated = in_group.map_or(0, |in_group| in_group.blocks.len());
    if end <= start.max(allocated) {
        return Ok(());
    }
    let message = format!(
        "caching {num_computed_tokens} tokens needs {end} blocks, but the request has {allocated} \
         in group {}; allocate slots first",
        data.id
    );
    Err(match retention.mask(data.id, request, (start, end)) {
        RetentionMask::All => Error::OutOfRange(message),
        _ => Error::Precondition(message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::GroupSpec;
    use crate::manager::{Manager, ManagerConfig};

    #[test]
    fn blocks_become_cacheable_at_the_least_number_of_tokens_that_suffices() {
        let drafts = GroupSpec { is_eagle_group: true, ..GroupSpec::sliding_window(8, 20) };
        let groups = [vec![GroupSpec::full(16)], vec![GroupSpec::full(32), drafts]];
        for (groups, use_eagle, lookahead) in
            groups.iter().flat_map(|it| (0..8).map(move |n| (it, n % 2 > 0, n / 2)))
        {
            let manager = Manager::new(ManagerConfig {
                use_eagle,
                num_prefill_lookahead: lookahead,
                ..ManagerConfig::new(40, groups.clone(), 1 << 12)
            });
            let manager = manager.expect("a manager");
            for group in manager.groups() {
                let rules = manager.retention.rules();
                let suffices =
                    |wanted| move |&n: &usize| num_cacheable_tokens(rules, group, n) >= wanted;
                for wanted in 1..200 {
                    let least = (0..400).find(suffices(wanted));
                    assert_eq!(Some(least_to_cache(rules, group, wanted)), least);
                }
            }
        }
    }
}
