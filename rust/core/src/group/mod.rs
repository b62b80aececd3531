//! KV cache groups: their block tables, and the blocks of a prefix that a group needs to continue
//! from it.
//!
//! Each kind of group has a file in `kinds`. The methods of [`Group`] show where kinds differ from
//! the usual table. The modules are listed by layer: each module uses only modules that are listed
//! later.

mod kinds;

mod table;

mod caching;
mod partial_hits;

mod context;

mod worker_commands;

mod query;
mod trie_prefix;

mod data;
mod declaration;
mod spec;

pub use caching::CacheTarget;
pub use context::SlotDemand;
pub use data::{GroupData, Skipped};
pub use declaration::{Caching, Declaration, PartialHits, Sharding};
pub use kinds::{Checkpoint, Kind, TableRecord, declaration, kinds, supported_kinds};
pub use partial_hits::SharedTail;
pub use query::{GroupHit, HitQuery, KnownPrefix};
pub use spec::{GroupSpec, Size, Sizes};
pub use worker_commands::Offload;

pub(crate) use caching::GroupCaching;
pub(crate) use context::{NeededBlocks, PlannedStep, ReadContext, StepContext};
pub(crate) use worker_commands::WorkerCommands;

pub(crate) use kinds::AlignedStates;
use kinds::{Rswa, circular_buffer};

use crate::block::BlockId;
use crate::request::{HeldBlocks, RequestId, RequestView};
use crate::retention::ActivePolicy;

/// A KV cache group of a manager. Where its kind differs from the usual table, it calls the kind.
#[derive(Debug)]
pub struct Group {
    data: GroupData,
    kind: Kind,
}

impl std::ops::Deref for Group {
    type Target = GroupData;

    #[inline]
    fn deref(&self) -> &GroupData {
        &self.data
    }
}

impl Group {
    /// Creates a group of a kind.
    pub(crate) fn new(data: GroupData, kind: Kind) -> Self {
        Self { data, kind }
    }

    /// Sets whether EAGLE drops the last block of hits.
    pub(crate) fn set_drops_eagle_block(&mut self, drops: bool) {
        self.data.drops_eagle_block = drops;
    }

    /// Sets whether hits can end inside a block. For kinds that never allow it, the value stays
    /// false.
    pub(crate) fn set_has_partial_hits(&mut self, has: bool) {
        self.data.has_partial_hits = has && self.partial_hits != PartialHits::Never;
    }

    /// Returns the group's kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the number of tokens for which the group's table has slots after a demand is met.
    #[inline]
    fn num_tokens(&self, demand: &SlotDemand<'_>) -> usize {
        match &self.kind {
            Kind::CircularBuffer => 1,
            Kind::Mamba(_) => demand.num_tokens_main_model,
            Kind::MambaNone(state) => state.with_drafts(&self.data, demand.num_tokens),
            Kind::CrossAttention => demand.num_encoder_tokens.min(isize::MAX as usize),
            _ => demand.num_tokens,
        }
    }

    /// Returns the blocks that a request needs.
    #[inline]
    pub(crate) fn demand<'a>(
        &self,
        context: &ReadContext<'_>,
        demand: &SlotDemand<'a>,
    ) -> NeededBlocks<'a> {
        let num_tokens = self.num_tokens(demand);
        match &self.kind {
            Kind::Mamba(states) => states.demand(&self.data, context, demand),
            _ => table::demand(&self.data, context.held, num_tokens, demand),
        }
    }

    /// Returns the number of tokens for which a table has slots; `None` if a step can change it while
    /// it has slots and no block is skipped.
    pub(crate) fn num_slots(&self, held: &HeldBlocks) -> Option<usize> {
        match &self.kind {
            Kind::Full(_) | Kind::SlidingWindow(_) | Kind::ChunkedLocal(_) => {
                Some(held.blocks.len() * self.data.block_size)
            }
            Kind::CircularBuffer => (!held.blocks.is_empty()).then_some(usize::MAX),
            Kind::Rswa(_) | Kind::Mamba(_) | Kind::MambaNone(_) | Kind::CrossAttention => None,
        }
    }

    /// Starts a request's table with the blocks of its hit.
    pub(crate) fn attach_hit(&mut self, context: &mut StepContext<'_>, step: &SlotDemand<'_>) {
        match &mut self.kind {
            Kind::Full(full) | Kind::Rswa(Rswa { full, .. }) => {
                full.attach_hit(&self.data, context, step);
            }
            Kind::Mamba(states) => states.attach_hit(&self.data, context, step),
            Kind::CircularBuffer | Kind::CrossAttention => {}
            _ => table::attach_hit(&self.data, context, step),
        }
    }

    /// Allocates blocks for the computed tokens of a step. The last of these tokens are external.
    pub(crate) fn allocate_external(
        &mut self,
        context: &mut StepContext<'_>,
        step: &SlotDemand<'_>,
        is_zeroed: bool,
    ) {
        let num_computed_tokens = step.total_computed_tokens;
        match &self.kind {
            Kind::CircularBuffer => _ = table::grow(&self.data, context, 1, false),
            Kind::Mamba(_) => _ = table::grow(&self.data, context, num_computed_tokens, false),
            Kind::CrossAttention => {}
            _ => table::allocate_external(&self.data, context, step, is_zeroed),
        }
    }

    /// Allocates the blocks of a step. Returns the blocks that the table gained.
    #[inline]
    pub(crate) fn allocate(
        &mut self,
        context: &mut StepContext<'_>,
        step: &SlotDemand<'_>,
    ) -> Vec<BlockId> {
        let num_tokens = self.num_tokens(step);
        match &mut self.kind {
            Kind::Full(full) | Kind::Rswa(Rswa { full, .. }) if full.has_shared_tail() => {
                full.copy_and_allocate(&self.data, context, num_tokens)
            }
            Kind::Mamba(states) => states.allocate(&self.data, context, num_tokens),
            _ => table::allocate(&self.data, context, num_tokens),
        }
    }

    /// Releases the blocks that no token after `num_computed_tokens` attends to. Returns how many
    /// of them count for the pinned tier.
    #[inline]
    pub(crate) fn release_skipped(
        &mut self,
        context: &mut StepContext<'_>,
        num_computed_tokens: usize,
        num_prompt_tokens: Option<usize>,
    ) -> usize {
        let released = match &mut self.kind {
            Kind::Rswa(rswa) => rswa.gap(&self.data, num_computed_tokens, num_prompt_tokens),
            Kind::Mamba(states) => {
                states.release_skipped(&self.data, context, num_computed_tokens);
                // Groups of states do not count: a prompt leaves states at boundaries and has no
                // moving window.
                return 0;
            }
            _ => 0..self.data.num_skipped_blocks(num_computed_tokens),
        };
        table::release_skipped(context, released)
    }

    /// Returns whether [`Self::release_skipped`] would release the block at a position of a
    /// request's table.
    pub(crate) fn is_skipped(
        &self,
        request: RequestId,
        position: usize,
        num_computed_tokens: usize,
        num_prompt_tokens: Option<usize>,
    ) -> bool {
        match &self.kind {
            Kind::Rswa(rswa) => {
                rswa.gap(&self.data, num_computed_tokens, num_prompt_tokens).contains(&position)
            }
            Kind::Mamba(states) => {
                states.is_skipped(&self.data, request, position, num_computed_tokens)
            }
            _ => position < self.data.num_skipped_blocks(num_computed_tokens),
        }
    }

    /// Caches the blocks of a request that are computed up to `num_tokens`.
    #[inline]
    pub(crate) fn cache(
        &mut self,
        context: &mut StepContext<'_>,
        retention: &ActivePolicy,
        request: &RequestView<'_>,
        num_tokens: usize,
    ) {
        let data = &self.data;
        match &mut self.kind {
            Kind::Mamba(states) => states.cache(data, context, retention, request, num_tokens),
            _ => GroupCaching { data, retention, request }.cache(context, num_tokens),
        }
    }

    /// Checks the invariants of a request's table. The error says which one is broken.
    pub(crate) fn check(&self, request: RequestId, held: &HeldBlocks) -> Result<(), String> {
        match &self.kind {
            Kind::CircularBuffer => circular_buffer::check(&self.data, held),
            Kind::Mamba(states) => states.check(request, held),
            _ => Ok(()),
        }
    }
}

impl Group {
    /// Returns the data that a group of states keeps on its requests; `None` for other kinds.
    pub(crate) fn states(&self) -> Option<&AlignedStates> {
        match &self.kind {
            Kind::Mamba(states) => Some(states),
            _ => None,
        }
    }

    /// Returns the data that a group of states keeps on its requests, for changes.
    pub(crate) fn states_mut(&mut self) -> Option<&mut AlignedStates> {
        match &mut self.kind {
            Kind::Mamba(states) => Some(states),
            _ => None,
        }
    }

    /// Returns the state that is kept inside the chunk of a running request, if there is one.
    pub fn checkpoint(&self, request: RequestId) -> Option<Checkpoint> {
        self.states()?.checkpoint(request)
    }

    /// Notes which state inside the chunk of a demand will be kept.
    pub(crate) fn note_checkpoint(&mut self, context: &ReadContext<'_>, demand: &SlotDemand<'_>) {
        if let Kind::Mamba(states) = &mut self.kind {
            states.note_checkpoint(&self.data, context, demand);
        }
    }

    /// Removes a request from the group's notes. The caller releases the blocks.
    #[inline]
    pub(crate) fn end(&mut self, request: RequestId, commands: &mut WorkerCommands) {
        let id = self.data.id;
        if let Some(states) = self.states_mut() {
            states.end(request);
            commands.offloads.of(id).retain(|offload| offload.request != request);
        }
    }
}
