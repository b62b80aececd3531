//! Full attention. A hit needs all blocks of its prefix. So it ends at the first block that is not
//! cached, or inside that block if an earlier prompt ended there.

use crate::block::BlockId;
use crate::error::Result;
use crate::group::context::{SlotDemand, StepContext};
use crate::group::data::GroupData;
use crate::group::declaration::{Caching, Declaration, PartialHits, Sharding};
use crate::group::partial_hits::SharedTail;
use crate::group::query::{GroupHit, HitQuery};
use crate::group::table;
use crate::request::GroupBlocks;

/// Full attention over keys and values.
pub(super) static FULL: Declaration = Declaration {
    name: "full_attention",
    event_name: "full_attention",
    short_name: "full",
    vllm_classes: ("FullAttentionSpec", "FullAttentionManager"),
    vllm_attributes: &[],
    required: &[],
    optional: &[],
    caching: Caching::Always,
    sharding: Sharding::Shared,
    partial_hits: PartialHits::Possible,
    hit_needs: "the whole prefix",
    releases: "",
    is_sparse: false,
    is_pinned_by_drop: false,
    supports_eagle: true,
    mixes_block_sizes: true,
    is_prefix_closed: true,
    is_state: false,
    covers_tokens: true,
    starts_with_hit: true,
    needs_zeroing: true,
    refuses_hit_first: true,
    has_usual_table: true,
};

/// Full attention over a compressed latent.
pub(super) static MLA: Declaration = Declaration {
    name: "mla_attention",
    event_name: "mla_attention",
    short_name: "mla",
    vllm_classes: ("MLAAttentionSpec", "FullAttentionManager"),
    ..FULL
};

/// Hidden states of full attention, kept so that they can be extracted.
pub(super) static HIDDEN_STATES: Declaration = Declaration {
    name: "hidden_states",
    event_name: "mla_attention",
    short_name: "hidden",
    vllm_classes: ("HiddenStateCacheSpec", "FullAttentionManager"),
    ..FULL
};

/// Full attention.
#[derive(Clone, Debug, Default)]
pub struct FullAttention {
    /// The block inside which the hit ends. It is set from when the hit is attached until blocks
    /// are allocated.
    shared_tail: Option<SharedTail>,
}

impl FullAttention {
    pub(crate) fn attach_hit(
        &mut self,
        data: &GroupData,
        context: &mut StepContext<'_>,
        step: &SlotDemand<'_>,
    ) {
        table::attach_hit(data, context, step);
        if data.has_partial_hits {
            self.shared_tail = SharedTail::of_attached(data, context, step, 0);
        }
    }

    /// Returns whether the hit that was just attached ends inside a block.
    #[inline]
    pub(crate) fn has_shared_tail(&self) -> bool {
        self.shared_tail.is_some()
    }

    /// Allocates a copy of the block inside which the hit ends, then the blocks of the step.
    #[cold]
    pub(crate) fn copy_and_allocate(
        &mut self,
        data: &GroupData,
        context: &mut StepContext<'_>,
        num_tokens: usize,
    ) -> Vec<BlockId> {
        let mut new = Vec::new();
        if let Some(tail) = self.shared_tail.take() {
            context.pool.allocate(1, &mut new);
            tail.replace_by(data, context, new[0]);
            // The copy must be zeroed even in a group whose new blocks are not zeroed.
            context.commands.to_zero.of(data.id).extend(&new);
        }
        new.append(&mut table::allocate(data, context, num_tokens));
        new
    }
}

/// Returns the longest aligned cached prefix.
pub(super) fn longest_hit(query: &HitQuery<'_>) -> Result<GroupHit> {
    let mut found = query.cached_prefix()?;
    let mut length = found[0].len() * query.block_size;
    if query.is_fine_grained() {
        length = extend_into_block(query, &mut found)?.unwrap_or(length);
    }
    if query.drops_eagle_block && length > 0 {
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

/// Adds the next block to a hit if it is cached up to a hash block inside it. Returns the length of
/// the longest such hit.
fn extend_into_block(query: &HitQuery<'_>, found: &mut [Vec<BlockId>]) -> Result<Option<usize>> {
    let per_block = query.block_size / query.alignment;
    let first = found[0].len() * per_block;
    let last = (first + per_block - 1).min(query.max_length / query.alignment);
    let Some((length, tail)) = query.last_hash_block(first + 1..=last)? else { return Ok(None) };
    found.iter_mut().zip(tail).for_each(|(ids, block)| ids.push(block));
    Ok(Some(length))
}
