//! Describes a group, before the first request.

use super::declaration::Declaration;
use super::spec::GroupSpec;
use crate::block::GroupId;
use crate::retention::{OlderRules, TailShape};

/// A group's kind and sizes, and properties that depend on the rest of the model. All sizes are in
/// tokens.
#[derive(Clone, Debug)]
pub struct GroupData {
    /// The number of the group.
    pub id: GroupId,
    /// The specification from which the group was created.
    pub spec: GroupSpec,
    /// The declaration of the group's kind.
    pub declaration: &'static Declaration,
    /// Tokens per block.
    pub block_size: usize,
    /// The leading tokens that need no block.
    pub skips: Skipped,
    /// Whether the group's blocks take part in prefix caching.
    pub is_cacheable: bool,
    /// Whether hits can end inside a block, at any multiple of the hash block size.
    pub has_partial_hits: bool,
    /// The rules of an older release of vLLM.
    pub(crate) older_rules: OlderRules,
    /// Whether the worker has to zero new blocks.
    pub(crate) is_zeroed: bool,
    /// Whether EAGLE drops the last block of hits.
    pub drops_eagle_block: bool,
    /// The number of blocks in the tail of a hit, without the block that EAGLE drops.
    pub(crate) tail_len: usize,
    /// The most blocks that a request holds at once; `None` if only the request's tokens limit
    /// them.
    pub(crate) max_admission_blocks: Option<usize>,
}

impl std::ops::Deref for GroupData {
    type Target = Declaration;

    #[inline]
    fn deref(&self) -> &Declaration {
        self.declaration
    }
}

/// The leading tokens that no further token attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// No token is skipped.
    Nothing,
    /// All tokens before the last `n` tokens are skipped. The next token counts as one of the `n`.
    BeforeWindow(usize),
    /// All tokens before the chunk of `n` tokens that has the next token are skipped.
    BeforeChunk(usize),
}

impl Skipped {
    /// Returns the number of leading tokens that are skipped.
    #[inline]
    pub fn num_skipped_tokens(self, num_computed_tokens: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::BeforeWindow(size) => num_computed_tokens.saturating_add(1).saturating_sub(size),
            Self::BeforeChunk(size) => num_computed_tokens / size * size,
        }
    }

    /// Returns the least number of computed tokens with which `num_skipped` leading tokens are
    /// skipped, which is at least 1.
    fn least_to_skip(self, num_skipped: usize) -> usize {
        match self {
            Self::Nothing => usize::MAX,
            Self::BeforeWindow(size) => num_skipped.saturating_add(size).saturating_sub(1),
            Self::BeforeChunk(size) => {
                num_skipped.checked_next_multiple_of(size).unwrap_or(usize::MAX)
            }
        }
    }

    /// Returns the most blocks that a request of `max_num_tokens` tokens holds at once; `None` if
    /// it releases none. Up to `max_in_flight_tokens` of its tokens are in steps not yet processed.
    pub(crate) fn max_blocks(
        self,
        block_size: usize,
        max_in_flight_tokens: usize,
        max_num_tokens: usize,
    ) -> Option<usize> {
        let num_blocks = |size: usize| {
            size.saturating_add(max_in_flight_tokens).min(max_num_tokens).div_ceil(block_size)
        };
        match self {
            Self::Nothing => None,
            // One block more, since the window can start inside a block.
            Self::BeforeWindow(size) => Some(num_blocks(size - 1) + 1),
            Self::BeforeChunk(size) => Some(num_blocks(size)),
        }
    }
}

impl GroupData {
    /// Returns the properties of the group that retention reads.
    pub(crate) fn tail_shape(&self) -> TailShape {
        TailShape {
            group: self.id,
            block_size: self.block_size,
            tail_len: self.tail_len(),
            drops_eagle_block: self.drops_eagle_block,
            is_cacheable: self.is_cacheable,
            is_sparse: self.is_sparse,
            is_state: self.is_state,
        }
    }

    /// Returns the number of blocks in the tail of a hit; 0 for kinds whose hits need more than a
    /// tail.
    pub fn tail_len(&self) -> usize {
        self.tail_len + usize::from(self.drops_eagle_block && self.is_sparse && !self.is_state)
    }

    /// Returns the number of leading blocks of a table that no token after `num_computed_tokens`
    /// attends to.
    #[inline]
    pub(crate) fn num_skipped_blocks(&self, num_computed_tokens: usize) -> usize {
        match self.skips {
            Skipped::Nothing => 0,
            skips => skips.num_skipped_tokens(num_computed_tokens) / self.block_size,
        }
    }

    /// Returns the least number of computed tokens at which more leading blocks of a table are
    /// skipped than at `num_computed_tokens`.
    pub(crate) fn least_to_skip_more(&self, num_computed_tokens: usize) -> usize {
        let num_skipped = self.num_skipped_blocks(num_computed_tokens);
        self.skips.least_to_skip((num_skipped + 1) * self.block_size)
    }
}
