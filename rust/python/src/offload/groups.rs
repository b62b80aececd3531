//! Properties of a connector's groups.

use pyo3::prelude::*;

/// A group of a connector, with the names of vLLM's configuration of it.
#[derive(FromPyObject)]
pub(super) struct OffloadGroup {
    /// The index of its blocks among the blocks of all groups.
    pub(super) group_idx: usize,
    pub(super) tokens_per_block: usize,
    pub(super) tokens_per_chunk: usize,
    /// Chunks of its window; `None` for full attention.
    pub(super) sliding_window_size_in_chunks: Option<usize>,
    /// Tokens before the end of a load that its window needs, where the window counts tokens.
    pub(super) load_window_tokens: Option<usize>,
    /// Whether its last chunk may change, so that a hit ends a chunk before it.
    pub(super) is_eagle_group: bool,
    /// Whether each of its chunks is a state, which covers all tokens before it.
    pub(super) is_state: bool,
}

impl OffloadGroup {
    /// Returns how many chunks a load that ends after `num_tokens` needs; `None` for all.
    pub(super) fn load_window(&self, num_tokens: usize) -> Option<usize> {
        let window = self.sliding_window_size_in_chunks?;
        let Some(tokens) = self.load_window_tokens else { return Some(window) };
        let padding = num_tokens.next_multiple_of(self.tokens_per_chunk) - num_tokens;
        Some(window.max((tokens + padding).div_ceil(self.tokens_per_chunk)))
    }
}
