//! Full attention: every block of the prefix is needed, so a hit runs from the start up to the
//! first block that is missing.

use super::{AttentionKind, GroupHit, HitQuery};
use crate::error::Result;
use crate::request::GroupBlocks;
use crate::spec::GroupSpec;

/// Full attention, over keys and values or over a compressed latent (MLA).
#[derive(Clone, Debug)]
pub struct FullAttention;

impl FullAttention {
    /// The kind of a spec.
    pub fn build(spec: &GroupSpec) -> Result<Box<dyn AttentionKind>> {
        spec.forbidden("sliding_window", spec.sliding_window.is_some())?;
        spec.forbidden("attention_chunk_size", spec.attention_chunk_size.is_some())?;
        spec.forbidden("extra_retained_tokens", spec.extra_retained_tokens > 0)?;
        spec.forbidden("prefix_cacheable=False", !spec.prefix_cacheable)?;
        Ok(Box::new(Self))
    }
}

impl AttentionKind for FullAttention {
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
