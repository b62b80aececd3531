//! Cross attention. The blocks of the encoder's tokens are allocated when a request is admitted and
//! kept to its end. They are never shared, because encoder input belongs to one request.

use super::full::FULL;
use crate::error::{Error, Result};
use crate::group::data::GroupData;
use crate::group::declaration::{Caching, Declaration, PartialHits, Sharding};
use crate::group::demand::GroupDemand;
use crate::request::GroupState;

/// Cross attention over the encoder's tokens.
pub(super) static CROSS_ATTENTION: Declaration = Declaration {
    name: "cross_attention",
    event_name: "cross_attention",
    short_name: "cross",
    vllm_classes: ("CrossAttentionSpec", "CrossAttentionManager"),
    caching: Caching::Never,
    sharding: Sharding::Replicated,
    partial_hits: PartialHits::Never,
    hit_needs: "nothing",
    is_prefix_closed: false,
    covers_tokens: false,
    starts_with_hit: false,
    has_usual_table: false,
    ..FULL
};

/// Returns the demand of a request: blocks for the encoder's tokens.
#[inline(never)]
pub(crate) fn demand(
    data: &GroupData,
    state: Option<&GroupState>,
    num_encoder_tokens: usize,
) -> GroupDemand<'static> {
    let num_held = state.map_or(0, |state| state.blocks.len());
    let missing = num_encoder_tokens.div_ceil(data.block_size).saturating_sub(num_held);
    GroupDemand { new: isize::try_from(missing).unwrap_or(isize::MAX), attached: &[] }
}

/// Returns the error that there is no prefix caching.
pub(crate) fn check_lookup() -> Result<()> {
    Err(Error::Config(
        "a group of kind 'cross_attention' cannot be cached; switch caching off".into(),
    ))
}
