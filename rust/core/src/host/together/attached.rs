//! The blocks of the pool that a load attaches, and the chunks that it brings.

use std::ops::Range;

use super::keys::ChunkKeys;
use crate::block::{BlockId, NULL_BLOCK};
use crate::host::search::HostGroup;
use crate::host::tier::{ChunkState, HostTier};
use crate::pool::BlockPool;
use crate::request::GroupBlocks;

/// Adds to the tables of a hit the blocks of the pool that a load up to `end` tokens attaches: full
/// attention from the start on, windows at the end, and no further states. The hit has `num_local`
/// tokens. `keys` are the request's keys in each of `groups`.
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
                let new: Option<Vec<_>> = (first.max(num_hit)..num_blocks).map(find).collect();
                if let Some(new) = new {
                    *table = extended(table, first..num_hit, new);
                }
            }
        }
    }
    tables
}

/// Returns the blocks of a table at some places, and new ones after them.
fn extended(table: &GroupBlocks, places: Range<usize>, new: Vec<BlockId>) -> GroupBlocks {
    let first = places.start;
    let mut blocks: Vec<_> = places.map(|place| table.get(place).unwrap_or(NULL_BLOCK)).collect();
    blocks.extend(new);
    GroupBlocks::new(first, blocks)
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
        let places = places_brought(group, keys, pool, (num_local, end));
        let is_ready =
            |place| matches!(tier.lookup(&keys.at(place)), Some(ChunkState::Ready { .. }));
        num_brought += places.len();
        let are_ready = group.load_window(end).is_none() || places.clone().all(is_ready);
        if places.end > keys.len() || !are_ready {
            return None;
        }
    }
    Some(num_brought)
}

fn places_brought(
    group: &HostGroup,
    keys: &impl ChunkKeys,
    pool: &BlockPool,
    (num_local, end): (usize, usize),
) -> Range<usize> {
    let last = end.div_ceil(group.tokens_per_block);
    let first = num_local / group.tokens_per_block;
    let is_in_pool = |place: &usize| *place < keys.len() && pool.find(&keys.at(*place)).is_some();
    match group.load_window(end) {
        None => (first..last).find(|place| !is_in_pool(place)).unwrap_or(last)..last,
        Some(window) => {
            let first = first.max(last.saturating_sub(window));
            match !group.is_state && (first..last).all(|place| is_in_pool(&place)) {
                true => last..last,
                false => first..last,
            }
        }
    }
}
