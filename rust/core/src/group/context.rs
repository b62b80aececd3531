//! What the groups of a request get for a step.

use super::mask::CacheRules;
use super::worker_commands::WorkerCommands;
use crate::pool::BlockPool;
use crate::request::{HeldBlocks, RequestId, RequestView};

/// What a group reads of a request, before anything changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadContext<'a> {
    /// The request.
    pub request: RequestId,
    /// What the request holds in the group; `None` for a request without blocks in any group.
    pub held: Option<&'a HeldBlocks>,
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
