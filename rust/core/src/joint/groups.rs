//! The groups of a manager as CPU memory sees them. A chunk is one block.

use crate::group::{Group, Size};
use crate::host::{HostGroup, HostSearch};
use crate::manager::Manager;

/// Returns the groups of a manager that cache blocks, and the order of their look-ups.
pub fn search_of(manager: &Manager) -> HostSearch {
    let cacheable = || manager.groups().iter().filter(|group| group.is_cacheable);
    let groups: Vec<_> = cacheable().map(host_group).collect();
    let aligned = cacheable().find(|group| group.spec.kind == "mamba");
    let mut order: Vec<_> = (0..groups.len()).collect();
    order.sort_by_key(|&at| groups[at].window_chunks.map(std::cmp::Reverse));
    HostSearch::new(groups, order, aligned.map(|group| group.block_size))
}

fn host_group(group: &Group) -> HostGroup {
    let (spec, size) = (&group.spec, group.block_size);
    let before = window_tokens(group);
    let window_chunks = match (&*spec.kind, before) {
        _ if group.is_state => Some(1),
        (_, Some(before)) => {
            let window = spec.size(Size::SlidingWindow).unwrap_or(1);
            Some(window.div_ceil(size).max(before.div_ceil(size)))
        }
        ("chunked_local_attention", None) => {
            spec.size(Size::AttentionChunkSize).map(|chunk| chunk.div_ceil(size))
        }
        (_, None) => None,
    };
    HostGroup {
        group_idx: usize::from(group.id),
        tokens_per_block: size,
        tokens_per_chunk: size,
        window_chunks,
        load_window_tokens: before,
        is_eagle_group: spec.is_eagle_group,
        is_state: group.is_state,
    }
}

/// Returns how many tokens before the end of a hit a sliding window needs; `None` for other groups.
pub fn window_tokens(group: &Group) -> Option<usize> {
    let spec = &group.spec;
    spec.kind.starts_with("sliding_window").then(|| {
        let window = spec.size(Size::SlidingWindow).unwrap_or(1);
        window - 1 + spec.size(Size::ExtraRetainedTokens).unwrap_or(0)
    })
}
