//! Finds hits of states: a hit is the last cached state, with null blocks before it.

use crate::block::BlockId;
use crate::error::Result;
use crate::group::query::{GroupHit, HitQuery};
use crate::request::GroupBlocks;

/// Returns the longest prefix with a cached state.
pub(in crate::group) fn longest_hit(query: &HitQuery<'_>) -> Result<GroupHit> {
    let found = match query.is_fine_grained() {
        true => query.last_hash_block(1..=query.max_length / query.alignment)?,
        false => last_block(query)?,
    };
    let Some((length, states)) = found else { return Ok(GroupHit::none(query.groups.len())) };
    let position = (length - 1) / query.block_size;
    let blocks = states.into_iter().map(|state| GroupBlocks::new(position, vec![state]));
    Ok(GroupHit { length, blocks: blocks.collect() })
}

/// Returns the longest aligned prefix whose last block is cached: its number of tokens and that
/// block in each group.
fn last_block(query: &HitQuery<'_>) -> Result<Option<(usize, Vec<BlockId>)>> {
    query.hashes.require(query.max_blocks())?;
    for num_blocks in (1..=query.max_blocks()).rev().filter(|&n| query.is_aligned(n)) {
        if let Some(states) = query.find_block(num_blocks - 1)? {
            return Ok(Some((num_blocks * query.block_size, states)));
        }
    }
    Ok(None)
}
