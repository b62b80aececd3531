//! Properties of a connector's groups.

use pyo3::prelude::*;

use kvoxide_core::host::HostGroup;

/// A group of a connector, with the names of vLLM's configuration of it.
#[derive(FromPyObject)]
pub(super) struct OffloadGroup {
    group_idx: usize,
    tokens_per_block: usize,
    tokens_per_chunk: usize,
    sliding_window_size_in_chunks: Option<usize>,
    load_window_tokens: Option<usize>,
    is_eagle_group: bool,
    is_state: bool,
}

impl From<OffloadGroup> for HostGroup {
    fn from(group: OffloadGroup) -> Self {
        Self {
            group_idx: group.group_idx,
            tokens_per_block: group.tokens_per_block,
            tokens_per_chunk: group.tokens_per_chunk,
            window_chunks: group.sliding_window_size_in_chunks,
            load_window_tokens: group.load_window_tokens,
            is_eagle_group: group.is_eagle_group,
            is_state: group.is_state,
        }
    }
}
