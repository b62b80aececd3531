//! What is known of a group before the first request.

use super::declaration::Declaration;
use super::spec::GroupSpec;
use crate::block::GroupId;

/// A group's kind and sizes, and what follows from the model around it. Sizes in tokens.
#[derive(Clone, Debug)]
pub struct GroupData {
    /// The number of the group.
    pub id: GroupId,
    /// What the group was made from.
    pub spec: GroupSpec,
    /// What the group's kind is.
    pub declaration: &'static Declaration,
    /// Tokens per block.
    pub block_size: usize,
    /// Which leading tokens need no block.
    pub head: Head,
    /// Whether the group's blocks take part in prefix caching.
    pub is_cacheable: bool,
    /// Whether hits can end inside a block, at any multiple of the hash block size.
    pub has_partial_hits: bool,
    /// Whether new blocks are to be zeroed.
    pub(crate) is_zeroed: bool,
    /// Whether hits drop their last block.
    pub drops_eagle_block: bool,
    /// The most blocks that a request holds at once; `None` for as many as it has tokens for.
    pub(crate) max_admission_blocks: Option<usize>,
}

impl std::ops::Deref for GroupData {
    type Target = Declaration;

    #[inline]
    fn deref(&self) -> &Declaration {
        self.declaration
    }
}

/// Which leading tokens the next token after a number of computed ones does not attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// None of them.
    Kept,
    /// All but the window of so many tokens that ends with it.
    Window(usize),
    /// All before its chunk of so many tokens.
    Chunk(usize),
}

impl Head {
    /// Returns the number of leading tokens that are skipped.
    #[inline]
    pub fn num_skipped_tokens(self, num_computed_tokens: usize) -> usize {
        match self {
            Self::Kept => 0,
            Self::Window(size) => num_computed_tokens.saturating_add(1).saturating_sub(size),
            Self::Chunk(size) => num_computed_tokens / size * size,
        }
    }

    /// Returns the most blocks that a request of `max_num_tokens` holds at once of which so many
    /// tokens are computed in flight; `None` if it holds all of its blocks.
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
            Self::Kept => None,
            // One more, since the window may start inside a block.
            Self::Window(size) => Some(num_blocks(size - 1) + 1),
            Self::Chunk(size) => Some(num_blocks(size)),
        }
    }
}

impl GroupData {
    /// Returns the number of leading blocks of a table that no token after `num_computed_tokens`
    /// attends to.
    #[inline]
    pub(crate) fn num_skipped_blocks(&self, num_computed_tokens: usize) -> usize {
        match self.head {
            Head::Kept => 0,
            head => head.num_skipped_tokens(num_computed_tokens) / self.block_size,
        }
    }
}
