//! The blocks of the pool that a load attaches, and the chunks that it brings.

use super::keys::ChunkKeys;
use crate::block::NULL_BLOCK;
use crate::host::search::HostGroup;
use crate::host::tier::{ChunkState, HostTier};
use crate::pool::BlockPool;
use crate::request::GroupBlocks;

/// Adds to the tables of a hit the blocks of the pool that a load up to `end` tokens attaches: full
/// attention from the start on, windows at the end, and no further states. A window's places that
/// the pool lacks are null blocks, unless no block follows. The hit has `num_local` tokens. `keys`
/// are the request's keys in each of `groups`.
pub fn attached(
    groups: &[HostGroup],
    keys: &[impl ChunkKeys],
    pool: &BlockPool,
    mut tables: Vec<GroupBlocks>,
    (num_local, end): (usize, usize),
) -> Vec<GroupBlocks> {
    for (group, keys) in groups.iter().zip(keys) {
        let num_blocks = end.div_ceil(group.tokens_per_block).min(keys.len());
        let num_hit = num_local / group.tokens_per_block;
        let find = |place: usize| pool.find(&keys.at(place));
        let table = &mut tables[group.group_idx];
        match group.load_window(end) {
            None => {
                table.truncate(num_hit);
                (table.len()..num_blocks).map_while(find).for_each(|block| table.push(block));
            }
            Some(_) if group.is_state => {}
            Some(window) => {
                let first = num_blocks.saturating_sub(window);
                let block = |place| match place < num_hit {
                    true => table.get(place),
                    false => find(place),
                };
                let last = (first..num_blocks).rfind(|&place| block(place).is_some());
                let places = first..last.map_or(first, |last| last + 1);
                let blocks = places.map(|place| block(place).unwrap_or(NULL_BLOCK));
                *table = GroupBlocks::new(first, blocks.collect());
            }
        }
    }
    tables
}

/// Returns how many chunks a load up to `end` tokens brings that attaches the blocks of
/// [`attached`]. Returns `None` if one of them is not ready. The search has found each chunk of full
/// attention already.
pub(super) fn num_brought(
    groups: &[HostGroup],
    keys: &[impl ChunkKeys],
    (pool, tier): (&BlockPool, &HostTier),
    (num_local, end): (usize, usize),
) -> Option<usize> {
    let mut num_brought = 0;
    for (group, keys) in groups.iter().zip(keys) {
        let places = num_local / group.tokens_per_block..end.div_ceil(group.tokens_per_block);
        if places.end > keys.len() {
            return None;
        }
        let is_missing = |place: &usize| pool.find(&keys.at(*place)).is_none();
        let is_ready =
            |place| matches!(tier.lookup(&keys.at(place)), Some(ChunkState::Ready { .. }));
        let Some(window) = group.load_window(end) else {
            num_brought += places.clone().find(is_missing).map_or(0, |first| places.end - first);
            continue;
        };
        let window = group.load_window_tokens.map_or(places.end.saturating_sub(window), |tokens| {
            end.saturating_sub(tokens) / group.tokens_per_block
        });
        let first = places.start.max(window);
        for place in (first..places.end).filter(|place| group.is_state || is_missing(place)) {
            if !is_ready(place) {
                return None;
            }
            num_brought += 1;
        }
    }
    Some(num_brought)
}
