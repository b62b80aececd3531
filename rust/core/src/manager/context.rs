//! The context of a call about one request: its blocks, and what the groups change for it.

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
    /// Makes a call for each group, with the request's table in it.
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
