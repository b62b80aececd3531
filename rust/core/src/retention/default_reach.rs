//! Finds how much of a prompt vLLM's default policy could hit.
//!
//! That policy keeps tails at the ends of prompts and where prompts diverge, and at no other place.
//! A request that shares a prefix with earlier ones hits it up to the last of these tails. The full
//! blocks of the prefix show where they are:
//!
//! - The last full block of a prompt has a tail.
//! - Each hit uses a prefix of a sequence. So the uses of its blocks fall where a request ended or
//!   diverged, and such a block has a tail from then on.
//! - Generated blocks that were used once have no tail.

use super::shape::{AllTails, TailShape};
use super::valuation::{Admission, SharedPrefix};
use crate::block::BlockId;
use crate::pool::{Adaptive, BlockMeta, BlockPool, WithoutTail};

/// How much of a prompt vLLM's default policy could hit.
#[derive(Clone, Copy, Debug)]
pub(super) struct DefaultReach<'a> {
    /// The tails of all groups.
    pub tails: AllTails,
    /// The group of full attention.
    pub full: &'a TailShape,
    /// Hits end at multiples of this many tokens.
    pub alignment: usize,
    /// The prefix that the request shares with earlier ones.
    pub prefix: &'a SharedPrefix,
}

impl DefaultReach<'_> {
    /// Notes in the pool what the default policy would do with a request that is admitted. Returns
    /// the part of the shared prefix that it would compute again.
    pub(super) fn note(self, pool: &mut BlockPool, admission: &Admission<'_>) -> WithoutTail {
        let Some((adaptive, _)) = pool.adaptive_mut() else { return WithoutTail::default() };
        let hit = admission.hit.get(usize::from(self.full.group)).map_or(&[][..], |hit| hit.ids());
        let (start, end) = (self.num_tokens(adaptive, hit), self.prefix.num_tokens);
        let num_without_tail = hit.len().saturating_sub(start / self.full.block_size);
        let num_tails = self.num_new_tails(start, admission.request.num_prompt_tokens);
        adaptive.note_default(num_tails, num_without_tail);
        // With groups of several block sizes, the hit can end after the shared prefix.
        WithoutTail { start: start.min(end), end }
    }

    /// Returns the number of tokens up to the last tail that the default policy has in the shared
    /// prefix. `hit` has the full blocks of the request's own hit.
    fn num_tokens(&self, adaptive: &Adaptive, hit: &[BlockId]) -> usize {
        let has_tail = |&block: &BlockId| self.has_tail(adaptive.meta(block));
        if self.prefix.last.is_none_or(|last| self.has_tail(last)) {
            return self.prefix.num_tokens;
        }
        let is_answer = |&block: &BlockId| adaptive.meta(block).is_unused_answer();
        let num_answers = hit.iter().rev().take_while(|&block| is_answer(block)).count();
        let prompt = &hit[..hit.len() - num_answers];
        let num_blocks = match prompt.last().is_some_and(has_tail) {
            true => prompt.len(),
            false => prompt.partition_point(|&block| !adaptive.meta(block).is_used_once()),
        };
        num_blocks * self.full.block_size / self.alignment * self.alignment
    }

    /// Returns whether the default policy has a tail after a full block, if some request ended or
    /// diverged there.
    fn has_tail(&self, block: BlockMeta) -> bool {
        let is_end = || block.nearness().least_tokens() < self.alignment;
        !block.is_used_once() || !block.is_generated() && is_end()
    }

    /// Returns the number of tail blocks that become cached with a prompt after a hit of
    /// `num_hit_tokens`: where it diverges from the shared prefix, and at its end. A tail begins
    /// after the hit or the tail before it, whose blocks are cached already.
    fn num_new_tails(&self, num_hit_tokens: usize, num_prompt_tokens: usize) -> usize {
        let end = num_prompt_tokens.saturating_sub(1) / self.alignment * self.alignment;
        let shared = self.prefix.num_tokens.clamp(num_hit_tokens, end.max(num_hit_tokens));
        self.tails.num_blocks(shared - num_hit_tokens)
            + self.tails.num_blocks(end.saturating_sub(shared))
    }
}
