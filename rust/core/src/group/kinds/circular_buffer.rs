//! Circular buffers. A request has one block for a sequence of any length. The block is overwritten
//! and never shared.

use super::full::FULL;
use crate::group::data::GroupData;
use crate::group::declaration::{Caching, Declaration, PartialHits, Sharding};
use crate::request::HeldBlocks;

/// Circular buffers, which vLLM has since 0.32.
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

/// Checks that a request has at most one block and that it is not cached.
pub(crate) fn check(data: &GroupData, held: &HeldBlocks) -> Result<(), String> {
    match (held.blocks.len(), held.num_cached_blocks) {
        (0 | 1, None) => Ok(()),
        (len, _) => Err(format!("the circular buffer of group {} has {len} blocks", data.id)),
    }
}
