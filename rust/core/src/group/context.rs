//! What the groups of a request get for a step.

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
    /// The rules by which blocks are cached.
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
    pub(crate) commands: &'a mut WorkerCommands,
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

/// The tokens that need slots at the end of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slots {
    /// All tokens.
    pub num_tokens: usize,
    /// Tokens of the target model, without lookahead slots for drafts.
    pub num_tokens_main_model: usize,
    /// Encoder tokens, for a request that is admitted now.
    pub num_encoder_tokens: usize,
}

/// Computed tokens that a connector brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct External {
    /// The number of external tokens.
    pub num_tokens: usize,
    /// Computed tokens, external ones included.
    pub total_computed_tokens: usize,
    /// Whether new blocks for them are zeroed.
    pub(crate) is_zeroed: bool,
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
