//! What a group gets for a call about a request.

use super::mask::CacheRules;
use super::worker_commands::WorkerCommands;
use crate::pool::BlockPool;
use crate::request::{GroupBlocks, GroupState, RequestId, RequestView};

/// What a group reads of a request, before anything changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadContext<'a> {
    /// The request.
    pub request: RequestId,
    /// What the request holds in the group; `None` for a request without blocks in any group.
    pub state: Option<&'a GroupState>,
    /// The pool.
    pub pool: &'a BlockPool,
    /// Which blocks become cached.
    pub rules: &'a CacheRules,
}

/// What a group changes for a request in a step.
#[derive(Debug)]
pub(crate) struct StepContext<'a> {
    /// The request.
    pub request: RequestId,
    /// What the request holds in the group.
    pub state: &'a mut GroupState,
    /// The pool.
    pub pool: &'a mut BlockPool,
    /// Commands to the worker.
    pub commands: &'a mut WorkerCommands,
}

/// A hit that is attached to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attachment<'a> {
    /// The group's blocks of the hit, if there is any hit.
    pub hit: Option<&'a GroupBlocks>,
    /// Where the hit ends, in tokens.
    pub num_local_computed_tokens: usize,
    /// Computed tokens, external ones included.
    pub total_computed_tokens: usize,
}

/// What a request needs slots for at the end of a step, in tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slots {
    /// Tokens that need a slot.
    pub num_tokens: usize,
    /// Those of them that are the target model's: without slots for drafts to come.
    pub num_tokens_main_model: usize,
    /// Encoder tokens that a request which is admitted now attends to.
    pub num_encoder_tokens: usize,
}

/// Computed tokens that a connector brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct External {
    /// How many.
    pub num_tokens: usize,
    /// Computed tokens up to their end.
    pub total_computed_tokens: usize,
    /// Whether their blocks are to be zeroed first.
    pub is_zeroed: bool,
}

/// A step that is about to be served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedStep<'a> {
    /// The request.
    pub request: &'a RequestView<'a>,
    /// Tokens before whose end blocks are released first.
    pub num_processed_tokens: usize,
    /// Whether a hit is attached, or blocks are allocated for what a connector brings.
    pub attaches: bool,
    /// Tokens of the group that are cached at the end; `None` if nothing is.
    pub num_tokens_to_cache: Option<usize>,
}
