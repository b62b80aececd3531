//! A group's turn in a call about a request: what the joints of its kind work on.

use super::orders::WorkOrders;
use crate::pool::BlockPool;
use crate::request::{GroupState, RequestId};

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
