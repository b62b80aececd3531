//! Classifies the tokens of a prompt that is admitted.

use super::hit_rules::HitRules;
use super::losses::{Losses, losses};
use super::outcome::{Outcome, PromptOutcomes};
use super::prompt_starts::PromptStart;
use super::seen::PromptKeys;
use crate::group::Group;
use crate::pool::BlockPool;
use crate::request::{GroupBlocks, HashSource};

/// A prompt that is admitted, before anything changes. Lengths are in tokens.
#[derive(Clone, Copy)]
pub(crate) struct AdmittedPrompt<'a> {
    /// All hashes of the request.
    pub hashes: &'a dyn HashSource,
    /// Whether the request reads the cache.
    pub reads_cache: bool,
    pub num_prompt_tokens: usize,
    /// The number of prompt and output tokens.
    pub num_tokens: usize,
    /// The length of the hit in this manager.
    pub num_local: usize,
    /// The length of the hit, including the tokens of a connector.
    pub num_computed: usize,
    /// The blocks of the hit, one table per group; empty for no hit.
    pub hit: &'a [GroupBlocks],
    /// The start of the prompt, if the caller has it.
    pub start: Option<PromptStart<'a>>,
}

impl AdmittedPrompt<'_> {
    /// Returns the outcomes of the prompt's tokens. They sum to the prompt.
    pub(super) fn classify(
        &self,
        rules: &HitRules,
        groups: &[Group],
        pool: &mut BlockPool,
    ) -> PromptOutcomes {
        let num_prompt_tokens = self.num_prompt_tokens;
        let num_local = self.num_local.min(num_prompt_tokens);
        let hit = self.num_computed.clamp(num_local, num_prompt_tokens);
        let num_answer = num_answer_tokens(pool, groups, self.hit, num_local);
        let mut outcomes = PromptOutcomes::default();
        outcomes.add(Outcome::HitAnswer, num_answer);
        outcomes.add(Outcome::HitGpu, num_local - num_answer);
        outcomes.add(Outcome::HitHost, hit - num_local);
        if self.reads_cache && rules.can_hit() {
            self.classify_misses(rules, pool, hit, &mut outcomes);
        } else {
            outcomes.add(Outcome::NotCacheable, num_prompt_tokens - hit);
        }
        outcomes
    }

    /// Adds the outcomes of the tokens after the hit.
    fn classify_misses(
        &self,
        rules: &HitRules,
        pool: &mut BlockPool,
        hit: usize,
        outcomes: &mut PromptOutcomes,
    ) {
        let num_prompt_tokens = self.num_prompt_tokens;
        let max_length = self.num_tokens.saturating_sub(1);
        let hash_block_size = rules.hash_block_size;
        let num_local = self.num_local.min(hit);
        let num_hashes = self.hashes.len().min(num_prompt_tokens / hash_block_size);
        let num_hashed = num_hashes * hash_block_size;
        let mut keys = PromptKeys { pool, hashes: self.hashes, hash_block_size, num_hashed };
        let seen = keys.seen(rules, (num_local, hit), max_length);
        let longest = rules.longest(seen.num_tokens, max_length);
        let last_end = rules.last_end(longest).clamp(hit, num_prompt_tokens);
        let Losses { evicted_full, evicted_tail, never_cached } =
            losses(rules, hit, longest, seen.present, |group, end| keys.ask(group, end));
        // A part of the hit that the caller did not take is cached, not evicted.
        let not_taken = match evicted_tail {
            0 => 0,
            _ => {
                let is_cached = &mut |group, end| keys.is_cached(group, end);
                let present = seen.present.map_or(longest, |present| present.min(longest));
                let check = |end| rules.check_tails(end, present, is_cached);
                rules.furthest(hit, hit + evicted_tail, check) - hit
            }
        };
        let num_below = seen.num_tokens.saturating_sub(last_end);
        let is_all_seen = seen.num_tokens == num_prompt_tokens;
        let num_last = if is_all_seen { num_prompt_tokens.saturating_sub(max_length) } else { 0 };
        let num_last = num_last.min(num_below);
        outcomes.add(Outcome::EvictedFull, evicted_full);
        outcomes.add(Outcome::EvictedTail, evicted_tail - not_taken);
        outcomes.add(Outcome::NeverCached, never_cached);
        outcomes.add(Outcome::BelowBlock, num_below - num_last);
        outcomes.add(Outcome::NotCacheable, not_taken + num_last);
        outcomes.add(Outcome::FirstTime, num_prompt_tokens - seen.num_tokens.max(last_end));
    }
}

/// Returns how many tokens of a hit are in blocks with generated tokens. The blocks of one group
/// count: the first group of full attention, or the group with the most blocks.
fn num_answer_tokens(
    pool: &BlockPool,
    groups: &[Group],
    hit: &[GroupBlocks],
    num_local: usize,
) -> usize {
    let Some(answers) = &pool.answers else { return 0 };
    let hits = || groups.iter().zip(hit).filter(|(group, _)| group.is_cacheable);
    let full = hits().find(|(group, _)| group.is_prefix_closed);
    let Some((group, blocks)) =
        full.or_else(|| hits().max_by_key(|(group, hit)| hit.ids().len() * group.block_size))
    else {
        return 0;
    };
    let (first, ids) = blocks.ids_from(0);
    let with_answer = (first..).zip(ids).filter(|&(_, &block)| answers.holds(block));
    let num_tokens = with_answer.map(|(position, _)| {
        let start = position * group.block_size;
        (start + group.block_size).min(num_local).saturating_sub(start)
    });
    num_tokens.sum()
}
