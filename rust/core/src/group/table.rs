//! The usual block table, with one block per `block_size` tokens. Leading blocks can be released or
//! skipped.

use std::ops::Range;

use super::context::{NeededBlocks, SlotDemand, StepContext};
use super::data::GroupData;
use crate::block::BlockId;
use crate::request::{GroupBlocks, HeldBlocks};

/// Returns how many new blocks a request needs for `num_tokens` tokens, and which blocks of the hit
/// it attaches.
#[inline]
pub(super) fn demand<'a>(
    data: &GroupData,
    held: Option<&HeldBlocks>,
    num_tokens: usize,
    demand: &SlotDemand<'a>,
) -> NeededBlocks<'a> {
    let mut required = num_tokens.div_ceil(data.block_size);
    if let (true, Some(cap)) = (demand.apply_admission_cap, data.max_admission_blocks) {
        required = required.min(cap);
    }
    let num_held = held.map_or(0, |held| held.blocks.len());
    if held.is_some_and(|held| held.num_cached_blocks.is_some()) {
        return NeededBlocks { new: required.saturating_sub(num_held) as isize, attached: &[] };
    }
    let skipped = data.num_skipped_blocks(demand.total_computed_tokens);
    let new = |num_local: usize| required.saturating_sub(skipped.max(num_local)) as isize;
    let Some(hit) = demand.hit(data.id).filter(|hit| data.starts_with_hit && !hit.is_empty())
    else {
        return NeededBlocks { new: new(num_held), attached: &[] };
    };
    let ends_inside = !demand.num_local_computed_tokens.is_multiple_of(data.block_size);
    let first = skipped.saturating_sub(num_held);
    let holes = if demand.fills_holes { hit.num_nulls_from(first) } else { 0 };
    NeededBlocks {
        new: new(num_held + hit.len()) + isize::from(ends_inside) + holes as isize,
        attached: hit.ids_from(first).1,
    }
}

/// Attaches the blocks of a hit. Puts null blocks at the positions of skipped blocks.
pub(super) fn attach_hit(data: &GroupData, context: &mut StepContext<'_>, step: &SlotDemand<'_>) {
    let num_skipped = data.num_skipped_blocks(step.total_computed_tokens);
    attach_hit_after(context, step.hit(data.id), num_skipped);
}

/// Attaches the blocks of a hit that follow the first `num_skipped` ones. Puts null blocks before
/// them.
pub(super) fn attach_hit_after(
    context: &mut StepContext<'_>,
    hit: Option<&GroupBlocks>,
    num_skipped: usize,
) {
    let StepContext { held, pool, .. } = context;
    held.blocks.push_nulls(num_skipped);
    if let Some(hit) = hit {
        pool.touch_null(hit.null_head().saturating_sub(num_skipped));
        pool.touch(hit.ids_from(num_skipped).1);
        held.blocks.extend_from(hit, num_skipped);
    }
    held.num_cached_blocks = Some(held.blocks.len());
}

/// Allocates blocks for external tokens, unless all computed tokens are skipped.
pub(super) fn allocate_external(
    data: &GroupData,
    context: &mut StepContext<'_>,
    step: &SlotDemand<'_>,
    is_zeroed: bool,
) {
    let num_computed_tokens = step.total_computed_tokens;
    if data.skips.num_skipped_tokens(num_computed_tokens) < num_computed_tokens {
        if step.fills_holes {
            fill_holes(data, context, data.num_skipped_blocks(num_computed_tokens), is_zeroed);
        }
        grow(data, context, num_computed_tokens, is_zeroed);
    }
}

/// Puts new blocks in the places of null blocks from `first` on. They are cached once they are
/// filled.
fn fill_holes(data: &GroupData, context: &mut StepContext<'_>, first: usize, is_zeroed: bool) {
    let StepContext { held, pool, commands, .. } = context;
    let num_holes = held.blocks.num_nulls_from(first);
    if num_holes == 0 {
        return;
    }
    let mut new = Vec::new();
    pool.allocate(num_holes, &mut new);
    pool.release_null(num_holes);
    if data.is_zeroed && is_zeroed {
        commands.to_zero.of(data.id).extend(&new);
    }
    held.hit_end = held.blocks.len();
    held.num_cached_blocks = Some(held.blocks.replace_nulls_from(first, &new));
}

/// Allocates slots for `num_tokens` tokens. Returns the blocks that the table gained.
#[inline]
pub(super) fn allocate(
    data: &GroupData,
    context: &mut StepContext<'_>,
    num_tokens: usize,
) -> Vec<BlockId> {
    let before = grow(data, context, num_tokens, true);
    context.held.blocks.ids()[before..].to_vec()
}

/// Lengthens a table until it has slots for `num_tokens` tokens. Returns how many blocks its tail
/// had before.
#[inline]
pub(super) fn grow(
    data: &GroupData,
    context: &mut StepContext<'_>,
    num_tokens: usize,
    is_zeroed: bool,
) -> usize {
    let table = &context.held.blocks;
    let before = table.ids().len();
    let required = num_tokens.div_ceil(data.block_size);
    if let Some(missing) = required.checked_sub(table.len()).filter(|&n| n > 0) {
        append_new(data, context, missing, is_zeroed);
    }
    before
}

/// Appends new blocks to a table. Most steps need none, so this function is cold.
#[cold]
#[inline(never)]
fn append_new(data: &GroupData, context: &mut StepContext<'_>, missing: usize, is_zeroed: bool) {
    let table = &mut context.held.blocks;
    let before = table.ids().len();
    context.pool.allocate(missing, table.ids_mut());
    if data.is_zeroed && is_zeroed {
        context.commands.to_zero.of(data.id).extend(&table.ids()[before..]);
    }
}

/// Releases the blocks in a range of positions, from its end backwards up to the first null block.
/// Returns how many blocks it released.
#[inline]
pub(super) fn release_skipped(context: &mut StepContext<'_>, positions: Range<usize>) -> usize {
    let released = context.held.blocks.release_range(positions.start, positions.end);
    let num_released = released.len();
    if num_released > 0 {
        context.pool.release(&released);
    }
    num_released
}
