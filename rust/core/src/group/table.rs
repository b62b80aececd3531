//! The usual block table, which has a block per `block_size` tokens. Leading blocks may be released
//! or skipped.

use std::ops::Range;

use super::context::{Attachment, External, StepContext};
use super::data::GroupData;
use super::demand::{BlockDemand, GroupDemand};
use crate::block::BlockId;
use crate::request::{GroupBlocks, GroupState};

/// Returns how many new blocks a request needs for `num_tokens`, and which blocks of the hit it
/// attaches.
#[inline]
pub(super) fn demand<'a>(
    data: &GroupData,
    state: Option<&GroupState>,
    num_tokens: usize,
    demand: &BlockDemand<'a>,
) -> GroupDemand<'a> {
    let mut required = num_tokens.div_ceil(data.block_size);
    if let (true, Some(cap)) = (demand.apply_admission_cap, data.max_admission_blocks) {
        required = required.min(cap);
    }
    let num_held = state.map_or(0, |state| state.blocks.len());
    if state.is_some_and(|state| state.num_cached_blocks.is_some()) {
        return GroupDemand { new: required.saturating_sub(num_held) as isize, attached: &[] };
    }
    let skipped = data.num_skipped_blocks(demand.total_computed_tokens);
    let new = |num_local: usize| required.saturating_sub(skipped.max(num_local)) as isize;
    let hit = demand.new_computed_blocks.get(usize::from(data.id));
    let Some(hit) = hit.filter(|hit| !hit.is_empty()) else {
        return GroupDemand { new: new(num_held), attached: &[] };
    };
    let ends_inside = !demand.num_local_computed_tokens.is_multiple_of(data.block_size);
    GroupDemand {
        new: new(num_held + hit.len()) + isize::from(ends_inside),
        attached: hit.tail_from(skipped.saturating_sub(num_held)).1,
    }
}

/// Attaches the blocks of a hit, with null blocks in place of those that are skipped.
pub(super) fn attach_hit(
    data: &GroupData,
    context: &mut StepContext<'_>,
    attachment: &Attachment<'_>,
) {
    let num_skipped = data.num_skipped_blocks(attachment.total_computed_tokens);
    attach_hit_after(context, attachment.hit, num_skipped);
}

/// Attaches the blocks of a hit behind the first `num_skipped`, with null blocks before them.
pub(super) fn attach_hit_after(
    context: &mut StepContext<'_>,
    hit: Option<&GroupBlocks>,
    num_skipped: usize,
) {
    let StepContext { state, pool, .. } = context;
    state.blocks.push_nulls(num_skipped);
    if let Some(hit) = hit {
        pool.touch_null(hit.null_head().saturating_sub(num_skipped));
        pool.touch(hit.tail_from(num_skipped).1);
        state.blocks.extend_from(hit, num_skipped);
    }
    state.num_cached_blocks = Some(state.blocks.len());
}

/// Allocates blocks for external tokens, unless all of them are skipped.
pub(super) fn allocate_external(
    data: &GroupData,
    context: &mut StepContext<'_>,
    external: &External,
) {
    let total = external.total_computed_tokens;
    let skipped = data.head.num_skipped_tokens(total);
    if external.num_tokens.min(total.saturating_sub(skipped)) > 0 {
        grow(data, context, total, external.is_zeroed);
    }
}

/// Allocates slots for `num_tokens`, and returns the blocks that the table gained.
#[inline]
pub(super) fn allocate(
    data: &GroupData,
    context: &mut StepContext<'_>,
    num_tokens: usize,
) -> Vec<BlockId> {
    let before = grow(data, context, num_tokens, true);
    context.state.blocks.tail()[before..].to_vec()
}

/// Lengthens a table until it has slots for `num_tokens`, and returns how many blocks its tail had.
#[inline]
pub(super) fn grow(
    data: &GroupData,
    context: &mut StepContext<'_>,
    num_tokens: usize,
    is_zeroed: bool,
) -> usize {
    let table = &mut context.state.blocks;
    let before = table.tail().len();
    let required = num_tokens.div_ceil(data.block_size);
    if let Some(missing) = required.checked_sub(table.len()).filter(|&n| n > 0) {
        context.pool.allocate(missing, table.ids_mut());
        if data.is_zeroed && is_zeroed {
            context.commands.zero(data.id, &table.tail()[before..]);
        }
    }
    before
}

/// Releases the blocks at positions of a table, the last one first, until one was released before.
/// Returns how many blocks are released.
#[inline]
pub(super) fn release_skipped(context: &mut StepContext<'_>, positions: Range<usize>) -> usize {
    let released = context.state.blocks.release_range(positions.start, positions.end);
    let num_released = released.len();
    if num_released > 0 {
        context.pool.release(&released);
    }
    num_released
}
