//! Marks the blocks that hold generated tokens.

use super::block_set::BlockSet;
use crate::block::BlockId;
use crate::pool::blocks::FullBlocks;

/// The blocks that held generated tokens when they were cached last. Whether a block is here that is
/// not cached has no meaning.
#[derive(Debug)]
pub(crate) struct AnswerBlocks(BlockSet);

impl AnswerBlocks {
    /// Creates the marks of a pool in which nothing is cached yet.
    pub(super) fn new(num_blocks: usize) -> Self {
        Self(BlockSet::new(num_blocks))
    }

    /// Returns whether a cached block holds generated tokens.
    pub(crate) fn holds(&self, block: BlockId) -> bool {
        self.0.has(block)
    }

    /// Notes that full blocks become cached. The request's prompt has `num_prompt_tokens` tokens.
    pub(super) fn note(&mut self, cached: &FullBlocks<'_>, num_prompt_tokens: usize) {
        let (prompt, answer) = cached.blocks.split_at(cached.num_filled_by(num_prompt_tokens));
        prompt.iter().for_each(|&block| self.set(block, false));
        answer.iter().for_each(|&block| self.set(block, true));
    }

    pub(super) fn set(&mut self, block: BlockId, holds: bool) {
        self.0.set(block, holds);
    }
}
