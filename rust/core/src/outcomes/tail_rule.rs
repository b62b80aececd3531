//! The tail that a hit needs in a group that does not need the whole prefix.

use crate::group::{Group, Skipped};

/// The tail that a hit needs. The rules are the rules of `longest_hit` in `group/kinds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailRule {
    /// This many blocks, or all blocks of a shorter prefix. The last `dropped` blocks are after the
    /// hit, because EAGLE drops them.
    Window { len: usize, dropped: usize },
    /// The blocks of the chunk in which the hit ends. A chunk has this many tokens.
    Chunk(usize),
    /// The state after all tokens.
    State,
}

impl TailRule {
    /// Returns the rule of a group. `is_searched_again` is true if a look-up searches the group
    /// again when other groups have shortened the hit. It then needs a block before the hit even
    /// for a window of one token.
    pub(super) fn of(group: &Group, is_searched_again: bool) -> Self {
        let dropped = usize::from(group.drops_eagle_block);
        match group.skips {
            _ if group.is_state => Self::State,
            Skipped::BeforeChunk(size) => Self::Chunk(size),
            // A window of one token needs no block, but hits still end with a block.
            _ if is_searched_again => {
                Self::Window { len: (group.tail_len() - dropped).max(1) + dropped, dropped }
            }
            _ => Self::Window { len: group.tail_len().max(1), dropped },
        }
    }

    /// Returns how many tokens after a hit of `end` tokens, and after the dropped block, a look-up
    /// matches. If a prefix is shorter than a window, vLLM first cuts the matched blocks to the
    /// alignment, and then drops a block.
    pub(super) fn num_past(self, block_size: usize, end: usize, alignment: usize) -> usize {
        match self {
            Self::Window { len, dropped: 1.. }
                if block_size < alignment && end / block_size + 1 < len =>
            {
                alignment
            }
            _ => 0,
        }
    }

    /// Checks that the tail of a hit of `end` tokens was cached. `is_cached` returns whether the
    /// prefix of this many tokens ends with a cached block or state. `num_past` is the number of
    /// tokens after the hit that the look-up matches in addition: see [`Self::num_past`]. If
    /// something is missing, returns the longest shorter hit that does not need it.
    pub(super) fn check(
        self,
        block_size: usize,
        (end, num_past): (usize, usize),
        mut is_cached: impl FnMut(usize) -> bool,
    ) -> Result<(), usize> {
        let num_blocks = end / block_size;
        let (first, last, dropped) = match self {
            Self::State if is_cached(end) => return Ok(()),
            Self::State => return Err(end - 1),
            Self::Window { len, dropped } => {
                let last = num_blocks + num_past / block_size + dropped;
                (last.saturating_sub(len), last, last - num_blocks)
            }
            Self::Chunk(size) => (end / size * size / block_size, num_blocks, 0),
        };
        match (first..last).rev().find(|position| !is_cached((position + 1) * block_size)) {
            None => Ok(()),
            Some(missing) => Err(missing.saturating_sub(dropped) * block_size),
        }
    }
}
