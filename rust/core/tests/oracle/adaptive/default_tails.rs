//! Models the tails of vLLM's default policy: at the ends of prompts and where prompts diverge. It
//! hits a prefix only up to the last tail. The model decides nothing.

use std::ops::Range;

use kvoxide_core::{BlockId, NULL_BLOCK};

use super::Adaptive;
use super::block::Block;
use super::requests::{Manager, Step};

/// The least number of tokens of each step of the nearness to the end of a prompt.
const LEAST_TOKENS: [usize; 3] = [256, 64, 0];
/// The least number of tokens of a block that is far from the end of its prompt.
const FAR: usize = 512;

impl Manager {
    /// Notes a request that starts with a prefix of `num_shared` tokens of earlier requests, whose
    /// last full-attention block is `last`. Returns the tokens of the prefix that the default policy
    /// computes again.
    pub(super) fn note_default(
        &mut self,
        step: &Step<'_>,
        num_shared: usize,
        last: Option<Block>,
    ) -> Range<usize> {
        let Some(full) = self.policy.full_group().map(usize::from) else { return 0..0 };
        let block_size = self.groups[full].block_size;
        let hit = step.hit.map_or(&[][..], |hit| &hit[full]);
        let num_hit = match last.is_none_or(|last| self.has_default_tail(&last)) {
            true => num_shared,
            false => self.num_blocks_to_tail(hit) * block_size / self.alignment * self.alignment,
        };
        let end = (step.num_prompt_tokens - 1) / self.alignment * self.alignment;
        let (mut num_tails, mut last) = (0, num_hit);
        for position in [num_shared.min(end), end] {
            num_tails += self.num_tail_blocks(position.saturating_sub(last));
            last = last.max(position);
        }
        self.policy.duel.cached_tails(num_tails);
        self.policy.num_without_tail = hit.len().saturating_sub(num_hit / block_size);
        num_hit..num_shared
    }

    /// Returns the number of blocks of a hit up to the last tail of the default policy.
    fn num_blocks_to_tail(&self, hit: &[BlockId]) -> usize {
        let block = |&id: &BlockId| self.policy.blocks[id as usize];
        let num_prompt = hit.iter().rposition(|id| !block(id).is_unused_answer());
        let prompt = &hit[..num_prompt.map_or(0, |last| last + 1)];
        if prompt.last().is_some_and(|last| self.has_default_tail(&block(last))) {
            return prompt.len();
        }
        prompt.partition_point(|id| block(id).uses > 1)
    }

    /// Returns whether the default policy has a tail after a full-attention block, if a request
    /// ended or diverged there.
    fn has_default_tail(&self, block: &Block) -> bool {
        let least = block.nearness.map_or(FAR, |step| LEAST_TOKENS[step]);
        block.uses > 1 || !block.is_generated && least < self.alignment
    }

    /// Returns the number of blocks of all tails among the last `num_tokens` tokens, as if all tails
    /// covered as many tokens as the longest.
    fn num_tail_blocks(&self, num_tokens: usize) -> usize {
        let windows = self.groups.iter().filter(|group| group.window.is_some());
        let blocks: Vec<_> =
            windows.map(|group| (group.tail_len().max(1), group.block_size)).collect();
        let longest = blocks.iter().map(|(num, size)| num * size).max().unwrap_or(1);
        let sum: usize = blocks.iter().map(|(num, _)| num).sum();
        sum * num_tokens.min(longest) / longest
    }
}

impl Adaptive {
    /// Returns how many of the last blocks of a hit the default policy would compute again, and
    /// forgets it. Tails do not count.
    pub(super) fn take_num_without_tail(&mut self, blocks: &[BlockId]) -> usize {
        let is_full = |&id: &BlockId| id != NULL_BLOCK && !self.blocks[id as usize].is_tail;
        if !blocks.first().is_some_and(is_full) {
            return 0;
        }
        std::mem::take(&mut self.num_without_tail).min(blocks.len())
    }
}
