//! Circular buffers. A request has one block of any length of the sequence, which is overwritten
//! and never shared.

use super::full::FULL;
use crate::block::BlockId;
use crate::group::context::StepContext;
use crate::group::data::GroupData;
use crate::group::declaration::{Caching, Declaration, PartialHits, Sharding};
use crate::group::demand::GroupDemand;
use crate::request::GroupState;

/// Circular buffers, as vLLM has them from 0.32 on.
pub(super) static CIRCULAR_BUFFER: Declaration = Declaration {
    name: "circular_buffer",
    event_name: "unknown",
    short_name: "circular",
    vllm_classes: ("CircularBufferSpec", "CircularBufferManager"),
    caching: Caching::Never,
    sharding: Sharding::Replicated,
    partial_hits: PartialHits::Never,
    hit_needs: "nothing",
    is_prefix_closed: false,
    starts_with_hit: false,
    needs_zeroing: false,
    has_usual_table: false,
    ..FULL
};

/// Returns the demand of a request: one block, unless it has that already.
#[inline(never)]
pub(crate) fn demand(state: Option<&GroupState>) -> GroupDemand<'static> {
    let has_block = state.is_some_and(|state| !state.blocks.is_empty());
    GroupDemand { new: isize::from(!has_block), attached: &[] }
}

/// Allocates the block of a request that has none, and returns the new block.
#[inline(never)]
pub(crate) fn allocate(context: &mut StepContext<'_>) -> Vec<BlockId> {
    let table = &mut context.state.blocks;
    if !table.is_empty() {
        return Vec::new();
    }
    context.pool.allocate(1, table.ids_mut());
    table.tail().to_vec()
}

/// Checks that a request has at most one block, which is not cached.
pub(crate) fn check(data: &GroupData, state: &GroupState) -> Result<(), String> {
    match (state.blocks.len(), state.num_cached_blocks) {
        (0 | 1, None) => Ok(()),
        (len, _) => Err(format!("the circular buffer of group {} is {len} blocks", data.id)),
    }
}
