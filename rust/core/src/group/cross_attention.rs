//! Cross attention: the blocks of what an encoder saw, taken when a request is admitted and kept to
//! its end. What an encoder saw is a request's own, so nothing of it is shared.

use super::cache_rules::CacheRules;
use super::data::GroupData;
use super::declaration::{Caching, Declaration, Sharding, Support};
use super::demand::{BlockDemand, GroupDemand};
use super::growing;
use super::kind::{Asked, Kind};
use super::query::{GroupHit, HitQuery};
use super::spec::GroupSpec;
use super::turn::{Adoption, External, Slots, Turn};
use crate::block::BlockId;
use crate::error::{Error, Result};
use crate::request::{GroupBlocks, RequestId, RequestView};

/// Cross attention over what an encoder saw.
pub static CROSS_ATTENTION: Declaration = Declaration {
    name: "cross_attention",
    event_name: "cross_attention",
    short_name: "cross",
    vllm_classes: ("CrossAttentionSpec", "CrossAttentionManager"),
    vllm_attributes: &[],
    required: &[],
    optional: &[],
    caching: Caching::Never,
    sharding: Sharding::Replicated,
    support: Support {
        hit_needs: "nothing",
        gives_back: "",
        is_sparse: false,
        is_pinned_by_drop: false,
        supports_eagle: true,
        mixes_block_sizes: true,
    },
    build: CrossAttention::build,
};

/// A table as long as the encoder's input.
#[derive(Clone, Debug)]
struct CrossAttention;

impl CrossAttention {
    fn build(_: &GroupSpec) -> Result<Box<dyn Kind>> {
        Ok(Box::new(Self))
    }
}

impl Kind for CrossAttention {
    fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        Ok(GroupHit { length: 0, blocks: vec![GroupBlocks::default(); query.groups.len()] })
    }

    fn adopts_hits(&self) -> bool {
        false
    }

    fn covers_tokens(&self) -> bool {
        false
    }

    fn check_lookup(&self, _: usize, _: bool) -> Result<()> {
        Err(Error::Config(
            "a group of kind 'cross_attention' cannot be cached; switch caching off".into(),
        ))
    }

    fn has_own_joints(&self) -> bool {
        true
    }

    fn demand<'a>(
        &mut self,
        data: &GroupData,
        asked: &Asked<'_>,
        demand: &BlockDemand<'a>,
    ) -> GroupDemand<'a> {
        let num_blocks = demand.num_encoder_tokens.div_ceil(data.block_size);
        let num_held = asked.state.map_or(0, |state| state.blocks.len());
        let missing = num_blocks.saturating_sub(num_held);
        GroupDemand { new: isize::try_from(missing).unwrap_or(isize::MAX), adopted: &[] }
    }

    fn adopt(&mut self, _: &GroupData, _: &mut Turn<'_>, _: &Adoption<'_>) {}

    fn fill_external(&mut self, _: &GroupData, _: &mut Turn<'_>, _: &External) {}

    fn extend(&mut self, data: &GroupData, turn: &mut Turn<'_>, slots: &Slots) -> Vec<BlockId> {
        growing::extend(data, turn, slots.num_encoder_tokens)
    }

    fn give_back(&mut self, _: &GroupData, _: &mut Turn<'_>, _: usize, _: Option<usize>) -> usize {
        0
    }

    fn is_given_back(
        &self,
        _: &GroupData,
        _: RequestId,
        _: usize,
        _: usize,
        _: Option<usize>,
    ) -> bool {
        false
    }

    fn cache(
        &mut self,
        _: &GroupData,
        _: &mut Turn<'_>,
        _: &CacheRules,
        _: &RequestView<'_>,
        _: usize,
    ) {
    }
}
