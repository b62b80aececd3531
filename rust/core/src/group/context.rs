//! What the groups of a request get for a step, and the blocks that they need for it.

use super::worker_commands::WorkerCommands;
use crate::block::{BlockId, GroupId};
use crate::pool::BlockPool;
use crate::request::{GroupBlocks, HeldBlocks, RequestId, RequestView};
use crate::retention::ActivePolicy;

/// What a group reads of a request, before anything changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadContext<'a> {
    /// The request.
    pub request: RequestId,
    /// What the request holds in the group; `None` for a request without blocks in any group.
    pub held: Option<&'a HeldBlocks>,
    /// The pool.
    pub pool: &'a BlockPool,
    /// The retention policy.
    pub(crate) retention: &'a ActivePolicy,
}

/// What a group changes for a request in a step.
#[derive(Debug)]
pub(crate) struct StepContext<'a> {
    /// The request.
    pub request: RequestId,
    /// What the request holds in the group.
    pub held: &'a mut HeldBlocks,
    /// The pool.
    pub pool: &'a mut BlockPool,
    /// Commands to the worker.
    pub(crate) commands: &'a mut WorkerCommands,
}

/// A step that is about to be served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedStep<'a> {
    /// The request.
    pub request: &'a RequestView<'a>,
    /// Computed tokens by which skipped blocks are released first.
    pub(crate) num_processed_tokens: usize,
    /// Whether a hit is attached, or blocks are allocated for external tokens.
    pub(crate) attaches: bool,
    /// Tokens up to which the group caches blocks at the end; `None` if it caches none.
    pub(crate) num_tokens_to_cache: Option<usize>,
}

/// What a request needs slots for, in tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotDemand<'a> {
    /// Tokens that need a slot, including those that have one.
    pub num_tokens: usize,
    /// The blocks of a hit to attach, per group; empty for none.
    pub new_computed_blocks: &'a [GroupBlocks],
    /// Computed tokens, external ones included.
    pub total_computed_tokens: usize,
    /// Computed tokens without external ones, which is where the hit ends. If it ends inside a
    /// block, a group needs one more block for the copy.
    pub num_local_computed_tokens: usize,
    /// Tokens of the target model, without lookahead slots for drafts.
    pub num_tokens_main_model: usize,
    /// Encoder tokens, for a request that is admitted now.
    pub num_encoder_tokens: usize,
    /// The end of the prefill. The chunk that reaches it keeps the state inside the chunk.
    pub prefill_end: usize,
    /// Whether the demand is about the whole request, for which kinds that release blocks need only
    /// what they hold at once.
    pub apply_admission_cap: bool,
}

impl<'a> SlotDemand<'a> {
    /// Returns a group's blocks of the hit, if there is any hit.
    pub(crate) fn hit(&self, group: GroupId) -> Option<&'a GroupBlocks> {
        self.new_computed_blocks.get(usize::from(group))
    }
}

/// What a request needs in one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NeededBlocks<'a> {
    /// New blocks; negative if the group is of states and its table longer than the request needs.
    pub new: isize,
    /// The blocks of the hit that are attached. Those that are free are taken from the free blocks.
    pub(crate) attached: &'a [BlockId],
}
