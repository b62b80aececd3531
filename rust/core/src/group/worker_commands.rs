//! Commands to the worker: blocks to zero, to copy or to offload.

use crate::block::{BlockId, GroupId};
use crate::request::RequestId;

/// Commands that the scheduler has not taken yet.
#[derive(Clone, Debug)]
pub(crate) struct WorkerCommands {
    /// Blocks to zero, group by group.
    to_zero: Vec<Vec<BlockId>>,
    /// Blocks to copy, from and to, group by group. Both have a reference, which the caller that
    /// takes the list releases after the copy.
    copies: Vec<Vec<(BlockId, BlockId)>>,
    /// Blocks that a connector may read until their request ends, group by group.
    offloads: Vec<Vec<Offload>>,
}

/// A block with the state of a prefix of a request, which a connector may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The request.
    pub request: RequestId,
    /// The group.
    pub group: GroupId,
    /// The block.
    pub block: BlockId,
    /// Tokens of the prefix.
    pub num_tokens: usize,
}

impl WorkerCommands {
    pub(crate) fn new(num_groups: usize) -> Self {
        Self {
            to_zero: vec![Vec::new(); num_groups],
            copies: vec![Vec::new(); num_groups],
            offloads: vec![Vec::new(); num_groups],
        }
    }

    /// Adds blocks of a group to zero.
    pub(crate) fn zero(&mut self, group: GroupId, blocks: &[BlockId]) {
        self.to_zero[usize::from(group)].extend_from_slice(blocks);
    }

    /// Returns the blocks to zero, group by group.
    pub(crate) fn to_zero(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.to_zero.iter().flatten().copied()
    }

    pub(crate) fn take_to_zero(&mut self) -> Vec<BlockId> {
        self.to_zero.iter_mut().flat_map(std::mem::take).collect()
    }

    /// Adds a block of a group to copy.
    pub(crate) fn copy(&mut self, group: GroupId, from: BlockId, to: BlockId) {
        self.copies[usize::from(group)].push((from, to));
    }

    /// Returns the blocks to copy, from and to, group by group.
    pub(crate) fn copies(&self) -> impl Iterator<Item = (BlockId, BlockId)> + '_ {
        self.copies.iter().flatten().copied()
    }

    /// Takes the blocks to copy, and with them a reference to each.
    pub(crate) fn take_copies(&mut self) -> Vec<(BlockId, BlockId)> {
        self.copies.iter_mut().flat_map(std::mem::take).collect()
    }

    /// Adds a block that a connector may read.
    pub(crate) fn offer(&mut self, offload: Offload) {
        self.offloads[usize::from(offload.group)].push(offload);
    }

    /// Removes the blocks of a request in a group that a connector may read.
    pub(crate) fn withdraw(&mut self, group: GroupId, request: RequestId) {
        self.offloads[usize::from(group)].retain(|offload| offload.request != request);
    }

    /// Returns the blocks that a connector may read, group by group.
    pub(crate) fn offloads(&self) -> impl Iterator<Item = &Offload> + '_ {
        self.offloads.iter().flatten()
    }

    pub(crate) fn take_offloads(&mut self) -> Vec<Offload> {
        self.offloads.iter_mut().flat_map(std::mem::take).collect()
    }
}
