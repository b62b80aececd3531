//! A group's turn in a call about a request: what the joints of its kind work on.

use super::orders::WorkOrders;
use crate::pool::BlockPool;
use crate::request::{GroupBlocks, GroupState, RequestId};

/// What a group may change for a request.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The request.
    pub request: RequestId,
    /// What it holds in the group.
    pub state: &'a mut GroupState,
    /// The pool.
    pub pool: &'a mut BlockPool,
    /// What the worker is to do.
    pub orders: &'a mut WorkOrders,
}

/// A hit that becomes the request's own.
#[derive(Clone, Copy, Debug)]
pub struct Adoption<'a> {
    /// The group's blocks of it, if there is any hit.
    pub hit: Option<&'a GroupBlocks>,
    /// Where it ends, in tokens.
    pub num_local_computed_tokens: usize,
    /// Computed tokens, external ones included.
    pub total_computed_tokens: usize,
}

/// What a request needs slots for at the end of a step, in tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slots {
    /// Tokens that need a slot.
    pub num_tokens: usize,
    /// Those of them that are the target model's: without slots for drafts to come.
    pub num_tokens_main_model: usize,
    /// Encoder tokens that a request which is admitted now attends to.
    pub num_encoder_tokens: usize,
}

/// Computed tokens that a connector brings.
#[derive(Clone, Copy, Debug)]
pub struct External {
    /// How many.
    pub num_tokens: usize,
    /// Computed tokens up to their end.
    pub total_computed_tokens: usize,
    /// Whether their blocks are to be zeroed first.
    pub is_zeroed: bool,
}
