//! Full attention: every block of the prefix is needed, so a hit runs from the start up to the
//! first block that is missing.

use super::declaration::{Caching, Declaration, Support};
use super::kind::Kind;
use super::query::{GroupHit, HitQuery};
use super::spec::GroupSpec;
use crate::error::Result;
use crate::request::GroupBlocks;

/// Full attention over keys and values.
pub static FULL: Declaration = Declaration {
    name: "full_attention",
    event_name: "full_attention",
    short_name: "full",
    vllm_classes: ("FullAttentionSpec", "FullAttentionManager"),
    required: &[],
    optional: &[],
    caching: Caching::Always,
    support: SUPPORT,
    build: FullAttention::build,
};

/// Full attention over a compressed latent.
pub static MLA: Declaration = Declaration {
    name: "mla_attention",
    event_name: "mla_attention",
    short_name: "mla",
    vllm_classes: ("MLAAttentionSpec", "FullAttentionManager"),
    ..FULL
};

const SUPPORT: Support = Support {
    hit_needs: "the whole prefix",
    gives_back: "",
    is_sparse: false,
    is_pinned_by_drop: false,
    supports_eagle: true,
    mixes_block_sizes: true,
};

/// Full attention.
#[derive(Clone, Debug)]
pub struct FullAttention;

impl FullAttention {
    fn build(_: &GroupSpec) -> Result<Box<dyn Kind>> {
        Ok(Box::new(Self))
    }
}

impl Kind for FullAttention {
    fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        let found = query.cached_prefix()?;
        let mut length = found[0].len() * query.block_size;
        if query.drop_eagle_block && length > 0 {
            length -= query.alignment.min(query.block_size);
        }
        length -= length % query.alignment;
        let num_blocks = length.div_ceil(query.block_size);
        let blocks = found.into_iter().map(|mut ids| {
            ids.truncate(num_blocks);
            GroupBlocks::new(0, ids)
        });
        Ok(GroupHit { length, blocks: blocks.collect() })
    }

    fn is_prefix_closed(&self) -> bool {
        true
    }

    fn caches_partial_tail(&self) -> bool {
        true
    }
}
