//! The context of a call for one request: its blocks, and the parts of the manager that groups
//! change.

use crate::group::{Group, StepContext, WorkerCommands};
use crate::pool::BlockPool;
use crate::request::{RequestBlocks, RequestId};

pub(super) struct RequestContext<'a> {
    pub id: RequestId,
    pub groups: &'a mut [Group],
    pub held: &'a mut RequestBlocks,
    pub pool: &'a mut BlockPool,
    pub(crate) commands: &'a mut WorkerCommands,
}

impl RequestContext<'_> {
    /// Calls a function for each group, with the request's table in the group.
    #[inline]
    pub(super) fn each<T>(
        &mut self,
        mut call: impl FnMut(&mut Group, &mut StepContext<'_>) -> T,
    ) -> impl Iterator<Item = T> {
        let Self { id: request, groups, held, pool, commands } = self;
        groups.iter_mut().zip(&mut held.groups).map(move |(group, in_group)| {
            call(group, &mut StepContext { request: *request, held: in_group, pool, commands })
        })
    }
}
