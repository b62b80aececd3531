//! A request's turn in a call: what it holds in every group, and what the groups work on.

use crate::group::{Group, Turn, WorkOrders};
use crate::pool::BlockPool;
use crate::request::{RequestBlocks, RequestId};

/// What a call may change for a request.
pub(super) struct RequestTurn<'a> {
    pub id: RequestId,
    pub groups: &'a mut [Group],
    pub held: &'a mut RequestBlocks,
    pub pool: &'a mut BlockPool,
    pub orders: &'a mut WorkOrders,
}

impl RequestTurn<'_> {
    /// Each group with its turn.
    #[inline]
    pub fn each<T>(
        &mut self,
        mut call: impl FnMut(&mut Group, &mut Turn<'_>) -> T,
    ) -> impl Iterator<Item = T> {
        let Self { id: request, groups, held, pool, orders } = self;
        groups.iter_mut().zip(&mut held.groups).map(move |(group, state)| {
            call(group, &mut Turn { request: *request, state, pool, orders })
        })
    }
}
