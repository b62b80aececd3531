//! Learns from requests that resume earlier sequences and from requests that end. It learns at
//! which boundaries near the ends of prompts requests resume, and the values of tails at the ends
//! of prompts and answers.

use super::Valuation;
use super::ends::{End, EndStatistics, EndValue, EndValues};
use crate::block::{BlockId, CacheKey};
use crate::pool::{Adaptive, BlockMeta, BlockPool, Blocks, ValueLevel, tuning};
use crate::request::{GroupBlocks, RequestBlocks, RequestView};
use crate::retention::shape::TailShape;

/// A request that is admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission<'a> {
    /// The request.
    pub request: &'a RequestView<'a>,
    /// The blocks of the request's hit, one table per group; empty for no hit.
    pub hit: &'a [GroupBlocks],
    /// The number of computed tokens whose blocks the manager has.
    pub num_local_computed_tokens: usize,
    /// The number of computed tokens, including external ones.
    pub num_computed_tokens: usize,
    /// Tokens per block hash.
    pub hash_block_size: usize,
}

/// The values of the tails of a request that ends.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::retention) struct SequenceValues {
    /// The value of the tail at the request's end.
    pub end: ValueLevel,
    /// The value of tails at earlier ends where requests resumed.
    pub resumed: EndValue,
}

/// The prefix that a request shares with earlier ones, whether the tails at its end were cached or
/// not.
#[derive(Clone, Copy, Debug)]
pub(in crate::retention) struct SharedPrefix {
    /// The number of tokens, a multiple of the alignment of hits.
    pub num_tokens: usize,
    /// The last block of full attention, if it is cached.
    pub last: Option<BlockMeta>,
}

impl SharedPrefix {
    /// Returns the prefix that a request shares in a group of full attention. Hits end at multiples
    /// of `alignment` tokens.
    pub(in crate::retention) fn of(
        full: &TailShape,
        alignment: usize,
        pool: &BlockPool,
        admission: &Admission<'_>,
    ) -> Self {
        let boundary = admission.request.shared_prefix_boundary;
        let shared = admission.num_local_computed_tokens.max(boundary);
        let num_tokens = shared / alignment * alignment;
        let last = last_shared_block(full, num_tokens, pool, admission);
        let meta = |block| pool.adaptive().map(|adaptive| adaptive.meta(block));
        Self { num_tokens, last: last.and_then(meta) }
    }
}

impl Valuation {
    /// Notes that a request continues earlier sequences where its shared prefix ends.
    pub(in crate::retention) fn note_resume(
        &mut self,
        pool: &BlockPool,
        prefix: &SharedPrefix,
        request: &RequestView<'_>,
    ) {
        let position = prefix.num_tokens;
        let (Some(adaptive), Some(last)) = (pool.adaptive(), prefix.last) else { return };
        // If more than one request resumed here, prompts diverge here. Then a tail is kept here
        // anyway, wherever the prompts end.
        if last.is_used_once()
            && let Some(kept_bins) = self.near_end.record(position, last.nearness())
        {
            self.model.kept_bins = kept_bins;
        }
        // A repeated or slightly extended prompt does not count as continuing past an end.
        let goes_on = position + tuning::REPEATED_TOKENS < request.num_prompt_tokens;
        if let Some(end) = resumed_end(last).filter(|&end| goes_on || end != End::Resumed) {
            self.ends.note_resume(end, position);
            self.update_ends(adaptive);
        }
    }

    /// Notes the ends of the prompt and of the answer of a request that ends. Returns the values of
    /// its tails.
    pub(in crate::retention) fn note_end(
        &mut self,
        shapes: &[TailShape],
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
            let size = shapes[full].block_size;
            let last_in_prompt = tails.num_prompt_tokens / size * size;
            if (tails.num_hit_tokens + 1..=num_tokens).contains(&last_in_prompt) {
                self.ends.note_end(End::Prompt, tails.num_prompt_tokens, weight);
            }
            if has_answer {
                self.ends.note_end(End::Answer, num_tokens, weight);
            }
        }
        let ends = self.update_ends(adaptive);
        let end = if has_answer { ends.answer } else { ends.prompt };
        SequenceValues { end: end.behind(num_tokens), resumed: ends.resumed }
    }

    fn update_ends(&mut self, adaptive: &Adaptive) -> EndValues {
        let reuse = adaptive.shadow().reuse_of_once_used();
        self.model.ends = self.ends.values(self.model.tail_cost, reuse);
        self.model.ends
    }
}

/// Returns the kind of end where a request resumes, given the last full-attention block of its
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
    full: &TailShape,
    position: usize,
    pool: &BlockPool,
    admission: &Admission<'_>,
) -> Option<BlockId> {
    let &Admission { request, hit, hash_block_size, .. } = admission;
    let index = (position / full.block_size).checked_sub(1)?;
    let hit = hit.get(usize::from(full.group));
    hit.and_then(|hit| hit.get(index)).or_else(|| {
        let per_block = full.block_size / hash_block_size;
        let hash = *request.hashes.get_at((index + 1).saturating_mul(per_block) - 1)?;
        pool.find(&CacheKey { hash, group: full.group })
    })
}
