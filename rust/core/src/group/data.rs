//! What is read of a group at every step.

use super::spec::GroupSpec;
use crate::block::GroupId;

/// A group's sizes and habits, as plain data. Sizes in tokens.
#[derive(Clone, Debug)]
pub struct GroupData {
    /// Its number.
    pub id: GroupId,
    /// What it was made from.
    pub spec: GroupSpec,
    /// Tokens per block.
    pub block_size: usize,
    /// Which leading tokens need no block.
    pub head: Head,
    /// Whether its blocks take part in prefix caching.
    pub is_cacheable: bool,
    /// Whether the end of a prompt is cached although it ends inside a block.
    pub caches_partial_tail: bool,
    /// Whether its tables start with the blocks of a hit.
    pub adopts_hits: bool,
    /// Whether every prefix of a hit is a hit.
    pub is_prefix_closed: bool,
    /// Whether a block is the state of a whole prefix instead of that of its tokens.
    pub is_state: bool,
    /// Whether hits can end inside its blocks, at any multiple of the hash block size.
    pub has_partial_hits: bool,
    /// Whether its new blocks are to be zeroed.
    pub is_zeroed: bool,
    /// Whether its hits drop their last block.
    pub drops_eagle_block: bool,
    /// The most blocks that a request holds at once, for kinds that give blocks back as they go.
    pub max_admission_blocks: Option<usize>,
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
    /// Leading tokens that are skipped.
    #[inline]
    pub fn num_skipped_tokens(self, num_computed_tokens: usize) -> usize {
        match self {
            Self::Kept => 0,
            Self::Window(size) => num_computed_tokens.saturating_add(1).saturating_sub(size),
            Self::Chunk(size) => num_computed_tokens / size * size,
        }
    }
}

impl GroupData {
    /// Leading blocks of a table that no token after `num_computed_tokens` attends to.
    #[inline]
    pub fn num_skipped_blocks(&self, num_computed_tokens: usize) -> usize {
        match self.head {
            Head::Kept => 0,
            head => head.num_skipped_tokens(num_computed_tokens) / self.block_size,
        }
    }
}
