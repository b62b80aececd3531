//! Commands to the worker: blocks to zero, to copy or to offload.

use crate::block::{BlockId, GroupId};
use crate::request::RequestId;

/// Commands that the scheduler has not taken yet.
#[derive(Clone, Debug)]
pub(crate) struct WorkerCommands {
    /// Blocks to zero.
    pub(crate) to_zero: ByGroup<BlockId>,
    /// Blocks to copy, as pairs (from, to). Both blocks have a reference. The caller that takes the
    /// list releases the references after the copy.
    pub(crate) copies: ByGroup<(BlockId, BlockId)>,
    /// Blocks that a connector can read until their request ends.
    pub(crate) offloads: ByGroup<Offload>,
}

/// A block with the state of a request's prefix, which a connector can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The request.
    pub request: RequestId,
    /// The group.
    pub group: GroupId,
    /// The block.
    pub block: BlockId,
    /// The number of tokens in the prefix.
    pub num_tokens: usize,
}

impl WorkerCommands {
    pub(crate) fn new(num_groups: usize) -> Self {
        Self {
            to_zero: ByGroup::new(num_groups),
            copies: ByGroup::new(num_groups),
            offloads: ByGroup::new(num_groups),
        }
    }
}

/// The commands of one type, by group.
#[derive(Clone, Debug)]
pub(crate) struct ByGroup<T>(Vec<Vec<T>>);

impl<T> ByGroup<T> {
    fn new(num_groups: usize) -> Self {
        Self((0..num_groups).map(|_| Vec::new()).collect())
    }

    /// Returns the commands of a group.
    pub(crate) fn of(&mut self, group: GroupId) -> &mut Vec<T> {
        &mut self.0[usize::from(group)]
    }

    /// Returns the commands of a group, for reading.
    pub(crate) fn get(&self, group: GroupId) -> &[T] {
        &self.0[usize::from(group)]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    pub(crate) fn take(&mut self) -> Vec<T> {
        self.0.iter_mut().flat_map(std::mem::take).collect()
    }
}
