//! Hits of states: a hit is the last cached state, with null blocks before it.

use crate::error::Result;
use crate::group::mask::{MaskQuery, RetentionMask};
use crate::group::query::{GroupHit, HitQuery};
use crate::request::GroupBlocks;

/// Returns the longest prefix of which a state is cached.
pub(in crate::group) fn longest_hit(query: &HitQuery<'_>) -> Result<GroupHit> {
    let found = match query.is_fine_grained() {
        true => last_unit(query)?,
        false => last_block(query)?,
    };
    Ok(found.unwrap_or_else(|| GroupHit {
        length: 0,
        blocks: vec![GroupBlocks::default(); query.groups.len()],
    }))
}

fn last_block(query: &HitQuery<'_>) -> Result<Option<GroupHit>> {
    query.hashes.require(query.max_blocks())?;
    for num_blocks in (1..=query.max_blocks()).rev() {
        if query.is_aligned(num_blocks)
            && let Some(states) = query.find_block(num_blocks - 1)?
        {
            let length = num_blocks * query.block_size;
            return Ok(Some(hit(length, num_blocks - 1, states)));
        }
    }
    Ok(None)
}

fn last_unit(query: &HitQuery<'_>) -> Result<Option<GroupHit>> {
    let num_units = (query.max_length / query.alignment).min(query.unit_hashes.len());
    for num_units in (1..=num_units).rev() {
        if let Some(states) = query.find_unit(num_units)? {
            let length = num_units * query.alignment;
            return Ok(Some(hit(length, (length - 1) / query.block_size, states)));
        }
    }
    Ok(None)
}

fn hit(length: usize, position: usize, states: Vec<u32>) -> GroupHit {
    let blocks = states.into_iter().map(|state| GroupBlocks::new(position, vec![state]));
    GroupHit { length, blocks: blocks.collect() }
}

/// Returns the mask of states: those at the ends of segments and at the boundaries are cached. One
/// block is enough for a hit, also with EAGLE, whose drafts have no state.
pub(crate) fn mask(query: &MaskQuery<'_>, block_size: usize) -> RetentionMask {
    if let Some(value) = query.tail_value(block_size, 1, 0) {
        let range = query.range.0..query.range.1;
        let boundaries = [query.replays, query.shared];
        return RetentionMask::Valued(value.values_of_states(range, boundaries));
    }
    let Some(interval) = query.retention_interval else { return RetentionMask::All };
    let (start, end) = query.range;
    let mut kept = Vec::new();
    if interval > 0 {
        let per_segment = interval / block_size;
        if per_segment <= 1 {
            return RetentionMask::All;
        }
        let first = (start + per_segment) / per_segment * per_segment - 1;
        kept.extend((first..end).step_by(per_segment));
    }
    let boundaries = query.boundaries().map(|tokens| tokens / query.alignment);
    let ends = boundaries.map(|units| units * query.alignment / block_size);
    kept.extend(ends.filter_map(|end| end.checked_sub(1)));
    kept.retain(|&block| (start..end).contains(&block));
    kept.sort_unstable();
    kept.dedup();
    RetentionMask::Runs(kept.into_iter().map(|block| block..block + 1).collect())
}
