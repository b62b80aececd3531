//! KV cache groups: which blocks of a prefix a group needs to continue from it, and its block
//! tables.
//!
//! A kind of group is a file in `kinds`; the methods of [`Group`] say where kinds differ from the
//! usual table. The modules stand in the order of their layers: each uses only those below.

mod kinds;

mod table;

mod caching;
mod partial_hits;

mod context;

mod mask;
mod value;

mod block_values;

mod ends;
mod resume_histogram;

mod doublings;

mod demand;
mod worker_commands;

mod query;
mod trie_prefix;

mod data;
mod declaration;
mod spec;

pub use caching::CacheTarget;
pub use data::{GroupData, Head};
pub use declaration::{Caching, Declaration, PartialHits, Sharding};
pub use demand::BlockDemand;
pub use ends::{End, EndStatistics, EndWorth, EndWorths};
pub use kinds::{Checkpoint, Kind, declaration, kinds, supported_kinds};
pub use mask::{MaskQuery, PartlyValued, RetentionMask};
pub use query::{GroupHit, HitQuery, KnownPrefix};
pub use resume_histogram::{KeptBins, ResumeHistogram};
pub use spec::{GroupSpec, Size, Sizes};
pub use value::ValueModel;
pub use worker_commands::Offload;

pub(crate) use context::{Attachment, External, PlannedStep, ReadContext, Slots, StepContext};
pub(crate) use demand::GroupDemand;
pub(crate) use mask::CacheRules;
pub(crate) use partial_hits::SharedTail;
pub(crate) use worker_commands::WorkerCommands;

use kinds::{AlignedStates, Rswa, circular_buffer, cross_attention};

use crate::block::BlockId;
use crate::error::Result;
use crate::request::{GroupState, RequestId, RequestView};

/// A KV cache group of a manager. Its kind is asked where it differs from the usual table.
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
    /// A group of a kind.
    pub(crate) fn new(data: GroupData, kind: Kind) -> Self {
        Self { data, kind }
    }

    /// Sets whether hits drop their last block.
    pub(crate) fn set_drops_eagle_block(&mut self, drops: bool) {
        self.data.drops_eagle_block = drops;
    }

    /// Sets whether hits can end inside a block, if the kind can do it.
    pub(crate) fn set_has_partial_hits(&mut self, has: bool) {
        self.data.has_partial_hits = has && self.partial_hits != PartialHits::Never;
    }

    /// Returns the group's kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the blocks that a request needs.
    #[inline]
    pub(crate) fn demand<'a>(
        &mut self,
        context: &ReadContext<'_>,
        demand: &BlockDemand<'a>,
    ) -> GroupDemand<'a> {
        let num_tokens = match &mut self.kind {
            Kind::CircularBuffer => return circular_buffer::demand(context.state),
            Kind::Mamba(states) => return states.demand(&self.data, context, demand),
            Kind::MambaNone(state) => state.with_drafts(&self.data, demand.num_tokens),
            Kind::CrossAttention => {
                return cross_attention::demand(
                    &self.data,
                    context.state,
                    demand.num_encoder_tokens,
                );
            }
            _ => demand.num_tokens,
        };
        table::demand(&self.data, context.state, num_tokens, demand)
    }

    /// Begins a request's table with the blocks of its hit.
    pub(crate) fn attach_hit(
        &mut self,
        context: &mut StepContext<'_>,
        attachment: &Attachment<'_>,
    ) {
        match &mut self.kind {
            Kind::Full(full) | Kind::Rswa(Rswa { full, .. }) => {
                full.attach_hit(&self.data, context, attachment);
            }
            Kind::Mamba(states) => states.attach_hit(&self.data, context, attachment),
            Kind::CircularBuffer | Kind::CrossAttention => {}
            _ => table::attach_hit(&self.data, context, attachment),
        }
    }

    /// Allocates blocks for external tokens.
    pub(crate) fn allocate_external(&mut self, context: &mut StepContext<'_>, external: &External) {
        match &mut self.kind {
            Kind::CircularBuffer => _ = circular_buffer::allocate(context),
            Kind::Mamba(states) => states.allocate_external(&self.data, context, external),
            Kind::CrossAttention => {}
            _ => table::allocate_external(&self.data, context, external),
        }
    }

    /// Allocates the blocks of a step, and returns those that the table gained.
    #[inline]
    pub(crate) fn allocate(
        &mut self,
        context: &mut StepContext<'_>,
        slots: &Slots,
    ) -> Vec<BlockId> {
        let num_tokens = match &mut self.kind {
            Kind::Full(full) | Kind::Rswa(Rswa { full, .. }) if full.has_shared_tail() => {
                return full.copy_and_allocate(&self.data, context, slots);
            }
            Kind::CircularBuffer => return circular_buffer::allocate(context),
            Kind::Mamba(states) => return states.allocate(&self.data, context, slots),
            Kind::MambaNone(state) => state.with_drafts(&self.data, slots.num_tokens),
            Kind::CrossAttention => slots.num_encoder_tokens,
            _ => slots.num_tokens,
        };
        table::allocate(&self.data, context, num_tokens)
    }

    /// Releases the blocks that no token after `num_computed_tokens` attends to, and returns how
    /// many of them count for the pinned tier.
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
                // A prompt leaves states behind, not a window that moves on.
                return 0;
            }
            _ => 0..self.data.num_skipped_blocks(num_computed_tokens),
        };
        table::release_skipped(context, released)
    }

    /// Whether [`Self::release_skipped`] would release what stands at a position of a request's
    /// table.
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
        rules: &CacheRules,
        request: &RequestView<'_>,
        num_tokens: usize,
    ) {
        let Self { data, kind } = self;
        match kind {
            Kind::Mamba(states) => states.cache(data, context, rules, request, num_tokens),
            _ => caching::cache(data, context, rules, request, num_tokens, |query| {
                kind.retention_mask(query)
            }),
        }
    }

    /// Checks the invariants of a request's table; the error says which one is broken.
    pub(crate) fn check(
        &self,
        request: RequestId,
        state: &GroupState,
    ) -> std::result::Result<(), String> {
        match &self.kind {
            Kind::CircularBuffer => circular_buffer::check(&self.data, state),
            Kind::Mamba(states) => states.check(request, state),
            _ => Ok(()),
        }
    }
}

/// Methods that do nothing in groups other than of states.
impl Group {
    fn states(&self) -> Option<&AlignedStates> {
        match &self.kind {
            Kind::Mamba(states) => Some(states),
            _ => None,
        }
    }

    fn states_mut(&mut self) -> Option<&mut AlignedStates> {
        match &mut self.kind {
            Kind::Mamba(states) => Some(states),
            _ => None,
        }
    }

    /// Checks that a step breaks nothing, apart from the number of free blocks. Returns whether the
    /// table is longer than the request needs, so that the demand is negative.
    pub(crate) fn check_step(
        &self,
        context: &ReadContext<'_>,
        demand: &BlockDemand<'_>,
        step: &PlannedStep<'_>,
    ) -> Result<bool> {
        let check = |states: &AlignedStates| states.check_step(&self.data, context, demand, step);
        self.states().map_or(Ok(false), check)
    }

    /// Returns how many blocks external tokens need beyond the demand; negative if they need fewer.
    pub(crate) fn num_blocks_beyond_demand(
        &self,
        context: &ReadContext<'_>,
        demand: &BlockDemand<'_>,
    ) -> isize {
        self.states()
            .map_or(0, |states| states.num_blocks_beyond_demand(&self.data, context, demand))
    }

    /// Checks that the states of a request that are computed up to `num_tokens` can be cached.
    pub(crate) fn check_cache(
        &self,
        context: &ReadContext<'_>,
        request: &RequestView<'_>,
        num_tokens: usize,
    ) -> Result<()> {
        self.states()
            .map_or(Ok(()), |states| states.check_cache(&self.data, context, request, num_tokens))
    }

    /// Takes the block with the state of all computed tokens of a request that ends. Returns the
    /// block and the number of tokens.
    pub(crate) fn finalize_partial_tail(
        &mut self,
        request: &RequestView<'_>,
    ) -> Option<(BlockId, usize)> {
        self.states_mut()?.finalize_partial_tail(request)
    }

    /// Returns the state inside the chunk of a running request, if one is kept.
    pub fn checkpoint(&self, request: RequestId) -> Option<Checkpoint> {
        self.states()?.checkpoint(request)
    }

    /// Forgets a request. The caller releases the blocks.
    #[inline]
    pub(crate) fn end(&mut self, request: RequestId, commands: &mut WorkerCommands) {
        let id = self.data.id;
        if let Some(states) = self.states_mut() {
            states.end(request);
            commands.withdraw(id, request);
        }
    }

    /// Begins a scheduling step.
    pub(crate) fn step_starts(&mut self) {
        if let Some(states) = self.states_mut() {
            states.step_starts();
        }
    }

    /// Puts everything that the kind remembers of requests into a digest.
    pub(crate) fn digest(&self, put: &mut dyn FnMut(u64)) {
        if let Some(states) = self.states() {
            states.digest(put);
        }
    }
}
