//! Marks the blocks that hold generated tokens.

use crate::block::BlockId;
use crate::pool::blocks::FullBlocks;

/// One bit per block: whether the block held generated tokens when it was cached last. The bit of a
/// block that is not cached has no meaning.
#[derive(Debug)]
pub(crate) struct AnswerBlocks(Vec<u64>);

impl AnswerBlocks {
    /// Creates the marks of a pool in which nothing is cached yet.
    pub(super) fn new(num_blocks: usize) -> Self {
        Self(vec![0; num_blocks.div_ceil(64)])
    }

    /// Returns whether a cached block holds generated tokens.
    pub(crate) fn holds(&self, block: BlockId) -> bool {
        self.0[block as usize / 64] >> (block % 64) & 1 != 0
    }

    /// Notes that full blocks become cached. The request's prompt has `num_prompt_tokens` tokens.
    pub(super) fn note(&mut self, cached: &FullBlocks<'_>, num_prompt_tokens: usize) {
        let (prompt, answer) = cached.blocks.split_at(cached.num_filled_by(num_prompt_tokens));
        prompt.iter().for_each(|&block| self.set(block, false));
        answer.iter().for_each(|&block| self.set(block, true));
    }

    pub(super) fn set(&mut self, block: BlockId, holds: bool) {
        let word = &mut self.0[block as usize / 64];
        let bit = 1 << (block % 64);
        *word = if holds { *word | bit } else { *word & !bit };
    }
}
