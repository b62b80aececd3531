//! The blocks of the pool that a load attaches, so that it need not bring them.

use super::keys::ChunkKeys;
use crate::host::search::HostGroup;
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
        let find = |place: usize| pool.find(&keys.at(place));
        let table = &mut tables[group.group_idx];
        match group.load_window(end) {
            None => {
                table.truncate(num_local / group.tokens_per_block);
                (table.len()..num_blocks).map_while(find).for_each(|block| table.push(block));
            }
            Some(_) if group.is_state => {}
            Some(window) => {
                let first = num_blocks.saturating_sub(window);
                let found: Option<Vec<_>> = (first..num_blocks).map(find).collect();
                if let Some(blocks) = found {
                    *table = GroupBlocks::new(first, blocks);
                }
            }
        }
    }
    tables
}
