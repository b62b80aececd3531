//! What a connector's groups are like.

use pyo3::prelude::*;

/// A group of a connector, with the names of vLLM's configuration of it.
#[derive(FromPyObject)]
pub(super) struct OffloadGroup {
    /// Where blocks of all groups have its blocks.
    pub(super) group_idx: usize,
    pub(super) tokens_per_block: usize,
    pub(super) tokens_per_chunk: usize,
    /// Chunks of its window; `None` for full attention.
    pub(super) sliding_window_size_in_chunks: Option<usize>,
    /// Tokens of its window that a load needs behind the chunk at which the load ends, where the
    /// window is of tokens.
    pub(super) load_window_tokens: Option<usize>,
    /// Whether its last chunk may change, so that a hit ends a chunk before it.
    pub(super) is_eagle_group: bool,
    /// Whether each of its chunks is a state, which stands for all tokens before it.
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
