//! Cross attention. The blocks for the encoder's tokens are allocated when a request is admitted,
//! and the request keeps them to its end. They are never shared, because an encoder input belongs
//! to one request.

use super::full::FULL;
use crate::group::declaration::{Caching, Declaration, PartialHits, Sharding};

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
