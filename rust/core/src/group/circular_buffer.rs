//! Circular buffers: one block a request, written over and over, whatever the length of the
//! sequence. Nothing of it is shared.

use super::cache_rules::CacheRules;
use super::data::GroupData;
use super::declaration::{Caching, Declaration, Sharding, Support};
use super::demand::{BlockDemand, GroupDemand};
use super::kind::{Asked, Kind};
use super::query::{GroupHit, HitQuery};
use super::spec::GroupSpec;
use super::turn::{Adoption, External, Slots, Turn};
use crate::block::BlockId;
use crate::error::Result;
use crate::request::{GroupBlocks, RequestId, RequestView};

/// Circular buffers, as vLLM has them from 0.32 on.
pub static CIRCULAR_BUFFER: Declaration = Declaration {
    name: "circular_buffer",
    event_name: "unknown",
    short_name: "circular",
    vllm_classes: ("CircularBufferSpec", "CircularBufferManager"),
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
    build: CircularBuffer::build,
};

/// One block a request, as large as the buffer.
#[derive(Clone, Debug)]
struct CircularBuffer;

impl CircularBuffer {
    fn build(_: &GroupSpec) -> Result<Box<dyn Kind>> {
        Ok(Box::new(Self))
    }

    /// Takes the request's block, unless it has it.
    fn claim(turn: &mut Turn<'_>) -> Vec<BlockId> {
        let table = &mut turn.state.blocks;
        if !table.is_empty() {
            return Vec::new();
        }
        turn.pool.take(1, table.ids_mut());
        table.tail().to_vec()
    }
}

impl Kind for CircularBuffer {
    fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        Ok(GroupHit { length: 0, blocks: vec![GroupBlocks::default(); query.groups.len()] })
    }

    fn num_blocks_at_end(&self, _: usize, _: usize) -> usize {
        1
    }

    fn adopts_hits(&self) -> bool {
        false
    }

    fn is_zeroed(&self) -> bool {
        false
    }

    fn has_own_joints(&self) -> bool {
        true
    }

    fn demand<'a>(
        &mut self,
        _: &GroupData,
        asked: &Asked<'_>,
        _: &BlockDemand<'a>,
    ) -> GroupDemand<'a> {
        let has_block = asked.state.is_some_and(|state| !state.blocks.is_empty());
        GroupDemand { new: isize::from(!has_block), adopted: &[] }
    }

    fn adopt(&mut self, _: &GroupData, _: &mut Turn<'_>, _: &Adoption<'_>) {}

    fn fill_external(&mut self, _: &GroupData, turn: &mut Turn<'_>, _: &External) {
        Self::claim(turn);
    }

    fn extend(&mut self, _: &GroupData, turn: &mut Turn<'_>, _: &Slots) -> Vec<BlockId> {
        Self::claim(turn)
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

    fn check(&self, data: &GroupData, asked: &Asked<'_>) -> std::result::Result<(), String> {
        let Some(state) = asked.state else { return Ok(()) };
        match (state.blocks.len(), state.num_cached_blocks) {
            (0 | 1, None) => Ok(()),
            (len, _) => Err(format!("the circular buffer of group {} is {len} blocks", data.id)),
        }
    }
}
