//! Full attention: every block of the prefix is needed, so a hit runs from the start up to the
//! first block that is missing, or into that block as far as a prompt ended there.

use super::cache_rules::CacheRules;
use super::data::GroupData;
use super::declaration::{Caching, Declaration, Support};
use super::growing;
use super::kind::Kind;
use super::partial_hits::SharedTail;
use super::query::{GroupHit, HitQuery};
use super::spec::GroupSpec;
use super::turn::{Adoption, Slots, Turn};
use crate::block::BlockId;
use crate::error::Result;
use crate::request::GroupBlocks;

/// Full attention over keys and values.
pub static FULL: Declaration = Declaration {
    name: "full_attention",
    event_name: "full_attention",
    short_name: "full",
    vllm_classes: ("FullAttentionSpec", "FullAttentionManager"),
    vllm_attributes: &[],
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

/// Full attention's hidden states, which are kept for whoever extracts them.
pub static HIDDEN_STATES: Declaration = Declaration {
    name: "hidden_states",
    event_name: "mla_attention",
    short_name: "hidden",
    vllm_classes: ("HiddenStateCacheSpec", "FullAttentionManager"),
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

/// Full attention. Its joints are its own only where hits can end inside its blocks.
#[derive(Clone, Debug, Default)]
pub struct FullAttention {
    has_partial_hits: bool,
    /// Between the adoption of a hit and the slots that go with it.
    shared_tail: Option<SharedTail>,
}

impl FullAttention {
    fn build(_: &GroupSpec) -> Result<Box<dyn Kind>> {
        Ok(Box::new(Self::default()))
    }
}

impl Kind for FullAttention {
    fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        let mut found = query.cached_prefix()?;
        let mut length = found[0].len() * query.block_size;
        if query.is_fine_grained() {
            length = extend_into_block(query, &mut found)?.unwrap_or(length);
        }
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

    fn supports_partial_hits(&self) -> bool {
        true
    }

    fn caches_partial_tail(&self) -> bool {
        true
    }

    fn learn(&mut self, rules: &CacheRules) {
        self.has_partial_hits = rules.has_partial_hits;
    }

    fn has_own_joints(&self) -> bool {
        self.has_partial_hits
    }

    fn adopt(&mut self, data: &GroupData, turn: &mut Turn<'_>, adoption: &Adoption<'_>) {
        growing::adopt(data, turn, adoption);
        self.shared_tail = SharedTail::of_adopted(data, turn, adoption, 0);
    }

    fn extend(&mut self, data: &GroupData, turn: &mut Turn<'_>, slots: &Slots) -> Vec<BlockId> {
        let mut new = Vec::new();
        if let Some(tail) = self.shared_tail.take() {
            turn.pool.take(1, &mut new);
            tail.replace_by(data, turn, new[0]);
            // The copy is zeroed first wherever the blocks of any group are.
            turn.orders.zero(data.id, &new);
        }
        new.append(&mut growing::extend(data, turn, slots.num_tokens));
        new
    }
}

/// Adds the block that is cached up to some hash block inside it, the last one that there is: the
/// length of the hit that ends there.
fn extend_into_block(query: &HitQuery<'_>, found: &mut [Vec<BlockId>]) -> Result<Option<usize>> {
    let per_block = query.block_size / query.alignment;
    let first = found[0].len() * per_block;
    let last = (first + per_block - 1)
        .min(query.max_length / query.alignment)
        .min(query.unit_hashes.len());
    for num_units in (first + 1..=last).rev() {
        if let Some(tail) = query.find_unit(num_units)? {
            found.iter_mut().zip(tail).for_each(|(ids, block)| ids.push(block));
            return Ok(Some(num_units * query.alignment));
        }
    }
    Ok(None)
}
