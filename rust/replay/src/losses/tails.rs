//! What of a group a hit needs at its end, where it does not need all of its prefix.

use kvoxide_core::group::{Group, Head};

use super::ends::{Ends, Path};

/// What a hit needs at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailRule {
    /// So many blocks in a row, or all that there are.
    Window(usize),
    /// The blocks of its chunk of so many tokens.
    Chunk(usize),
    /// The state of all of its tokens.
    State,
}

impl TailRule {
    /// The rule of a group.
    pub fn of(group: &Group) -> Self {
        match group.head {
            _ if group.is_state => Self::State,
            Head::Chunk(size) => Self::Chunk(size),
            // A window of one token needs nothing before it, and hits still end with a block.
            _ => Self::Window(group.kind().tail_len(group.drops_eagle_block).max(1)),
        }
    }

    /// Whether all was ever cached that a hit of so many tokens needs, where `cached` are the ends
    /// of blocks that were.
    pub fn was_cached(
        self,
        cached: &Ends,
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
