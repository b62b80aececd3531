//! The contexts of a call for one request: its blocks, and the parts of the manager that the call
//! reads or that groups change. A call looks the request's blocks up once and passes them on.

use super::config::ManagerConfig;
use super::layout::Layout;
use crate::group::{Group, ReadContext, StepContext, WorkerCommands};
use crate::pool::BlockPool;
use crate::request::{RequestBlocks, RequestId};
use crate::retention::ActivePolicy;

/// The state that a call for one request reads.
#[derive(Clone, Copy)]
pub(super) struct RequestReads<'a> {
    pub id: RequestId,
    pub config: &'a ManagerConfig,
    pub layout: &'a Layout,
    pub groups: &'a [Group],
    /// The request's blocks; `None` if the request has no blocks in any group.
    pub held: Option<&'a RequestBlocks>,
    pub pool: &'a BlockPool,
    pub retention: &'a ActivePolicy,
}

impl<'a> RequestReads<'a> {
    /// Yields each group with the data of the request that it reads.
    #[inline]
    pub(super) fn each(self) -> impl Iterator<Item = (&'a Group, ReadContext<'a>)> {
        let Self { id: request, groups, held, pool, retention, .. } = self;
        groups.iter().enumerate().map(move |(i, group)| {
            let held = held.map(|held| &held.groups[i]);
            (group, ReadContext { request, held, pool, retention })
        })
    }
}

/// The state that a step of one request changes.
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
