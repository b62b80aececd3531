//! What adaptive retention learns from where requests resume: at which boundaries near the ends of
//! prompts, and what tails at the ends of prompts and of answers are worth.

use crate::block::{BlockId, CacheKey};
use crate::group::{CacheRules, End, EndStatistics, EndValue, EndValues, Group, ResumeHistogram};
use crate::pool::{Adaptive, BlockMeta, BlockPool, Blocks, ValueLevel, tuning};
use crate::request::{RequestBlocks, RequestView};

use super::args::AllocateArgs;

/// Where requests continued earlier sequences, and the rules that follow from it.
#[derive(Debug)]
pub(super) struct Resumes {
    near_end: ResumeHistogram,
    ends: EndStatistics,
}

/// The values of the tails of a request that ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SequenceValues {
    /// The value of the tail at its end.
    pub end: ValueLevel,
    /// The value of tails at earlier ends, at which requests resumed.
    pub resumed: EndValue,
}

impl Resumes {
    /// Nothing has been learnt. Hits end at multiples of `alignment` tokens.
    pub(super) fn new(alignment: usize) -> Self {
        Self { near_end: ResumeHistogram::new(alignment), ends: EndStatistics::default() }
    }

    /// Notes that a request continues earlier sequences where its shared prefix ends, whether or
    /// not the tails there were cached.
    pub(super) fn note_resume(
        &mut self,
        rules: &mut CacheRules,
        groups: &[Group],
        pool: &BlockPool,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
    ) {
        let shared = args.num_local(request).max(request.shared_prefix_boundary);
        let position = shared / rules.tail_alignment * rules.tail_alignment;
        let Some(adaptive) = pool.adaptive() else { return };
        let Some(full) = adaptive.full_group.map(|id| &groups[usize::from(id)]) else { return };
        let last = last_shared_block(full, rules.hash_block_size, position, pool, request, args);
        let Some(last) = last.map(|block| adaptive.meta(block)) else { return };
        // Where more requests resumed, prompts diverge: a tail is kept there wherever their ends are.
        if last.is_used_once()
            && let Some(kept_bins) = self.near_end.record(position, last.nearness())
            && let Some(model) = &mut rules.value_model
        {
            model.kept_bins = kept_bins;
        }
        // Who repeats a prompt, or adds a few tokens to it, passes no end.
        let goes_on = position + tuning::REPEATED_TOKENS < request.num_prompt_tokens;
        if let Some(end) = resumed_end(last).filter(|&end| goes_on || end != End::Resumed) {
            self.ends.note_resume(end, position);
            self.update_ends(rules, adaptive);
        }
    }

    /// Notes the ends of the prompt and of the answer of a request that ends. Returns the values of
    /// its tails.
    pub(super) fn note_end(
        &mut self,
        rules: &mut CacheRules,
        groups: &[Group],
        adaptive: &Adaptive,
        blocks: &Blocks,
        held: &RequestBlocks,
    ) -> SequenceValues {
        let Some(full) = adaptive.full_group.map(usize::from) else {
            return SequenceValues::default();
        };
        let last = held.groups[full].blocks.iter_owned_rev().find(|&block| blocks.is_cached(block));
        let has_answer = last.is_some_and(|block| adaptive.meta(block).is_unused_answer());
        let num_tokens = last.map_or(0, |block| blocks.last_hash_num_tokens(block));
        if let Some(tails) = &held.tails {
            let weight = EndStatistics::weight(num_tokens.saturating_sub(tails.num_hit_tokens));
            let size = groups[full].block_size;
            let last_in_prompt = tails.num_prompt_tokens / size * size;
            if (tails.num_hit_tokens + 1..=num_tokens).contains(&last_in_prompt) {
                self.ends.note_end(End::Prompt, tails.num_prompt_tokens, weight);
            }
            if has_answer {
                self.ends.note_end(End::Answer, num_tokens, weight);
            }
        }
        let ends = self.update_ends(rules, adaptive);
        let end = if has_answer { ends.answer } else { ends.prompt };
        SequenceValues { end: end.behind(num_tokens), resumed: ends.resumed }
    }

    fn update_ends(&self, rules: &mut CacheRules, adaptive: &Adaptive) -> EndValues {
        let Some(model) = &mut rules.value_model else { return EndValues::default() };
        model.ends = self.ends.values(model.tail_cost, adaptive.shadow().reuse_of_once_used());
        model.ends
    }
}

/// Returns the kind of end at which a request resumes, given the last full-attention block of its
/// shared prefix; `None` if no sequence ended there.
fn resumed_end(last: BlockMeta) -> Option<End> {
    if !last.is_end() {
        None
    } else if !last.is_used_once() {
        Some(End::Resumed)
    } else if last.is_generated() {
        Some(End::Answer)
    } else {
        Some(End::Prompt)
    }
}

/// Returns the full-attention block that ends at a position of the shared prefix, if it is cached.
fn last_shared_block(
    full: &Group,
    hash_block_size: usize,
    position: usize,
    pool: &BlockPool,
    request: &RequestView<'_>,
    args: &AllocateArgs<'_>,
) -> Option<BlockId> {
    let index = (position / full.block_size).checked_sub(1)?;
    let hit = args.new_computed_blocks.get(usize::from(full.id));
    hit.and_then(|hit| hit.get(index)).or_else(|| {
        let per_block = full.block_size / hash_block_size;
        let hash = *request.hashes.get_at((index + 1).saturating_mul(per_block) - 1)?;
        pool.find(&CacheKey { hash, group: full.id })
    })
}
