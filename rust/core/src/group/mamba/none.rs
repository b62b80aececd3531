//! Mode `none`: a block for the running state, as large as a sequence can get, and one for each
//! draft token. Nothing of it is shared.

use crate::block::BlockId;
use crate::error::{Error, Result};
use crate::group::data::{GroupData, Head};
use crate::group::declaration::{Caching, Declaration, Sharding, Support};
use crate::group::demand::{BlockDemand, GroupDemand};
use crate::group::growing;
use crate::group::kind::{Asked, Kind};
use crate::group::query::{GroupHit, HitQuery};
use crate::group::spec::{GroupSpec, Size};
use crate::group::turn::{Slots, Turn};
use crate::request::GroupBlocks;

/// Mamba with `mamba_cache_mode="none"`.
pub static MAMBA_NONE: Declaration = Declaration {
    name: "mamba_none",
    event_name: "mamba",
    short_name: "mamba-none",
    vllm_classes: ("MambaSpec", "MambaManager"),
    vllm_attributes: &[("mamba_cache_mode", "none")],
    required: &[],
    optional: &[
        Size::NumSpeculativeBlocks,
        Size::NumPrefillCheckpointBlocks,
        Size::PrefillCheckpointAlignment,
    ],
    caching: Caching::Never,
    sharding: Sharding::Whole,
    support: Support {
        hit_needs: "nothing",
        gives_back: "",
        is_sparse: true,
        is_pinned_by_drop: false,
        supports_eagle: true,
        mixes_block_sizes: true,
    },
    build: RunningState::build,
};

/// A table that grows as others do, with blocks for drafts behind it.
#[derive(Clone, Debug)]
struct RunningState {
    num_speculative_blocks: usize,
}

impl RunningState {
    fn build(spec: &GroupSpec) -> Result<Box<dyn Kind>> {
        Ok(Box::new(Self { num_speculative_blocks: num_speculative_blocks(spec)? }))
    }

    /// Tokens with those of the blocks for drafts.
    fn with_drafts(&self, data: &GroupData, num_tokens: usize) -> usize {
        num_tokens.saturating_add(data.block_size.saturating_mul(self.num_speculative_blocks))
    }
}

/// Blocks behind the running state that drafts write to.
pub fn num_speculative_blocks(spec: &GroupSpec) -> Result<usize> {
    match spec.size(Size::NumSpeculativeBlocks).unwrap_or(0) {
        0 => Ok(0),
        given => GroupSpec::positive(Size::NumSpeculativeBlocks.name(), given),
    }
}

impl Kind for RunningState {
    fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        Ok(GroupHit { length: 0, blocks: vec![GroupBlocks::default(); query.groups.len()] })
    }

    fn is_sparse(&self) -> bool {
        true
    }

    fn is_state(&self) -> bool {
        true
    }

    fn head(&self) -> Head {
        // The state of the last computed token is all that the next one needs.
        Head::Window(2)
    }

    fn num_blocks_at_end(&self, _: usize, _: usize) -> usize {
        1 + self.num_speculative_blocks
    }

    fn is_zeroed(&self) -> bool {
        false
    }

    fn check_lookup(&self, _: usize, _: bool) -> Result<()> {
        Err(Error::Config(
            "a group of kind 'mamba_none' cannot be cached; switch caching off, or use the kind \
             'mamba', which is mode 'align'"
                .into(),
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
        let num_tokens = self.with_drafts(data, demand.num_tokens);
        growing::demand(data, asked.state, &BlockDemand { num_tokens, ..*demand })
    }

    fn extend(&mut self, data: &GroupData, turn: &mut Turn<'_>, slots: &Slots) -> Vec<BlockId> {
        growing::extend(data, turn, self.with_drafts(data, slots.num_tokens))
    }
}
