//! The tail that a hit needs in a group that does not need the whole prefix.

use kvoxide_core::group::{Group, Skipped};

use super::prefix_set::{Path, PrefixSet};

/// The tail that a hit needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailRule {
    /// This many blocks, or all blocks of a shorter prefix.
    Window(usize),
    /// The blocks of the last chunk. A chunk has this many tokens.
    Chunk(usize),
    /// The state after all tokens.
    State,
}

impl TailRule {
    /// Returns the rule of a group.
    pub fn of(group: &Group) -> Self {
        match group.skips {
            _ if group.is_state => Self::State,
            Skipped::BeforeChunk(size) => Self::Chunk(size),
            // A window of one token needs no block, but hits still end with a block.
            _ => Self::Window(group.tail_len().max(1)),
        }
    }

    /// Returns whether the tail of a hit of `num_tokens` tokens was ever cached. `cached` has the
    /// prefixes that end with cached blocks.
    pub fn was_cached(
        self,
        cached: &PrefixSet,
        path: &Path<'_>,
        block_size: usize,
        num_tokens: usize,
    ) -> bool {
        let num_blocks = num_tokens / block_size;
        let first = match self {
            Self::State => return cached.contains(path, num_tokens),
            Self::Window(need) => num_blocks.saturating_sub(need),
            Self::Chunk(size) => (num_tokens - 1) / size * size / block_size,
        };
        (first..num_blocks).rev().all(|i| cached.contains(path, (i + 1) * block_size))
    }
}
