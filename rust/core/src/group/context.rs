//! The context of a step: the data that groups read and change, and the blocks that they need.

use super::worker_commands::WorkerCommands;
use crate::block::{BlockId, GroupId};
use crate::pool::BlockPool;
use crate::request::{GroupBlocks, HeldBlocks, RequestId, RequestView};
use crate::retention::ActivePolicy;

/// The data of a request that a group reads, before anything changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadContext<'a> {
    /// The request.
    pub request: RequestId,
    /// The request's blocks in the group; `None` if the request has no blocks in any group.
    pub held: Option<&'a HeldBlocks>,
    /// The pool.
    pub pool: &'a BlockPool,
    /// The retention policy.
    pub(crate) retention: &'a ActivePolicy,
}

/// The data of a request that a group changes in a step.
#[derive(Debug)]
pub(crate) struct StepContext<'a> {
    /// The request.
    pub request: RequestId,
    /// The request's blocks in the group.
    pub held: &'a mut HeldBlocks,
    /// The pool.
    pub pool: &'a mut BlockPool,
    /// Commands to the worker.
    pub(crate) commands: &'a mut WorkerCommands,
}

/// A step that the groups are about to serve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedStep<'a> {
    /// The request.
    pub request: &'a RequestView<'a>,
    /// The number of computed tokens that decides which skipped blocks are released first.
    pub(crate) num_processed_tokens: usize,
    /// Whether the step attaches a hit or allocates blocks for external tokens.
    pub(crate) attaches: bool,
    /// The group caches blocks up to this token at the end of the step; `None` if it caches none.
    pub(crate) num_tokens_to_cache: Option<usize>,
}

/// The tokens for which a request needs slots.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotDemand<'a> {
    /// Tokens that need a slot, including those that have one.
    pub num_tokens: usize,
    /// The blocks of the hit to attach, per group; empty without a hit.
    pub new_computed_blocks: &'a [GroupBlocks],
    /// Whether new blocks are needed for null blocks of the hit, after the skipped ones.
    pub fills_holes: bool,
    /// Computed tokens, including external ones.
    pub total_computed_tokens: usize,
    /// Computed tokens without external ones: the end of the hit. If the hit ends inside a block, a
    /// group needs one more block for the copy.
    pub num_local_computed_tokens: usize,
    /// Tokens of the target model, without lookahead slots for drafts.
    pub num_tokens_main_model: usize,
    /// Encoder tokens, if the request is admitted in this step.
    pub num_encoder_tokens: usize,
    /// The end of the prefill, in tokens. The chunk that reaches it also keeps the state inside the
    /// chunk.
    pub prefill_end: usize,
    /// Whether the demand covers the whole request. Then kinds that release blocks count only the
    /// blocks that they hold at once.
    pub apply_admission_cap: bool,
}

impl<'a> SlotDemand<'a> {
    /// Returns a group's blocks of the hit, if there is a hit.
    pub(crate) fn hit(&self, group: GroupId) -> Option<&'a GroupBlocks> {
        self.new_computed_blocks.get(usize::from(group))
    }
}

/// The blocks that a request needs in one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NeededBlocks<'a> {
    /// The number of new blocks. It is negative if the group has states and the table is longer
    /// than the request needs.
    pub new: isize,
    /// The blocks of the hit to attach. Those that are free leave the free blocks.
    pub(crate) attached: &'a [BlockId],
}
