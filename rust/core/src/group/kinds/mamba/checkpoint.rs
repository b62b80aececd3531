//! States inside a chunk of the prompt. Such a state is at the last boundary of the chunk where a
//! later request can resume. The worker exports it into the block before the running state.

use crate::retention::CacheRules;

/// A state inside a chunk of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The number of tokens that the state covers.
    pub num_tokens: usize,
    /// The state's position in the request's table.
    pub position: usize,
}

/// Returns the end, in tokens, of the last reusable state of a prompt, or of a chunk that ends at
/// `num_tokens`.
pub(super) fn last_boundary(rules: &CacheRules, num_tokens: usize, unit: usize) -> usize {
    if rules.drops_checkpoint_block {
        // The block that EAGLE drops already leaves tokens to recompute.
        return (num_tokens / unit * unit).saturating_sub(unit);
    }
    // The last token is recomputed, and the hash at the boundary covers the lookahead tokens after
    // it.
    num_tokens.saturating_sub(rules.num_hash_lookahead_tokens.max(1)) / unit * unit
}

/// Returns the tokens of the state inside a chunk that ends at `num_tokens`, or of the last such
/// state of a prompt of this length.
pub(super) fn checkpoint_boundary(rules: &CacheRules, num_tokens: usize) -> usize {
    if !rules.older.places_checkpoints_by_hash {
        return last_boundary(rules, num_tokens, rules.tail_alignment);
    }
    let unit = rules.hash_block_size;
    let dropped = if rules.drops_checkpoint_block { unit } else { 0 };
    (num_tokens.saturating_sub(1) / unit * unit).saturating_sub(dropped)
}

/// Returns the tokens up to which the end of a prompt is cached.
pub(super) fn prompt_end(rules: &CacheRules, num_prompt_tokens: usize) -> usize {
    let unit = rules.hash_block_size;
    match rules.older.caches_unreachable_ends && !rules.drops_checkpoint_block {
        true => num_prompt_tokens / unit * unit,
        false => last_boundary(rules, num_prompt_tokens, unit),
    }
}

/// A chunk of a prompt, in tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    /// Computed tokens before the chunk.
    pub start: usize,
    /// Computed tokens after the chunk.
    pub end: usize,
}

impl Chunk {
    /// Returns whether the worker can export the state at `boundary` in this chunk.
    pub(super) fn can_export(
        self,
        boundary: usize,
        hash_block_size: usize,
        block_size: usize,
        alignment: Option<usize>,
    ) -> bool {
        let Some(alignment) = alignment else { return false };
        // The column after the state that the chunk starts from, and the column before the chunk's
        // end.
        let start_column = self.start.div_ceil(block_size);
        let boundary_column = self.end.div_ceil(block_size).saturating_sub(1);
        self.start.is_multiple_of(hash_block_size)
            && boundary_column > start_column
            && self.start.saturating_add(hash_block_size) <= boundary
            && self.start < boundary
            && boundary < self.end
            && (boundary - self.start).is_multiple_of(alignment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_exports_a_state_between_its_ends_alone() {
        let chunk = Chunk { start: 16, end: 58 };
        assert!(chunk.can_export(48, 4, 16, Some(4)));
        assert!(!chunk.can_export(48, 4, 16, None), "no backend does");
        assert!(!chunk.can_export(48, 4, 16, Some(24)), "not aligned");
        assert!(chunk.can_export(44, 4, 16, Some(28)), "aligned from where the chunk starts");
        assert!(!chunk.can_export(18, 4, 16, Some(2)), "less than a hash block");
        assert!(!chunk.can_export(58, 4, 16, Some(2)), "the end itself");
        // The chunk starts from the state in column 0, and the column before its end is 2.
        assert!(!Chunk { start: 16, end: 32 }.can_export(24, 4, 16, Some(4)));
        assert!(!Chunk { start: 18, end: 58 }.can_export(48, 4, 16, Some(2)), "starts inside");
    }
}
