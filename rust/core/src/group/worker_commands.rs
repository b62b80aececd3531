//! What the worker is to do before the next step, as one value.

use crate::block::{BlockId, GroupId};
use crate::request::RequestId;

/// Work that calls have ordered and nobody has fetched yet.
#[derive(Clone, Debug)]
pub(crate) struct WorkerCommands {
    /// Blocks to zero, group by group.
    to_zero: Vec<Vec<BlockId>>,
    /// Blocks to copy, group by group: from, to. Both have a reference for it that whoever takes
    /// the list gives back once the copy is done.
    copies: Vec<Vec<(BlockId, BlockId)>>,
    /// Blocks that a connector may read until their request ends, group by group.
    offloads: Vec<Vec<Offload>>,
}

/// A block whose content stands for a prefix of a request.
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
    /// No commands, for so many groups.
    pub(crate) fn new(num_groups: usize) -> Self {
        Self {
            to_zero: vec![Vec::new(); num_groups],
            copies: vec![Vec::new(); num_groups],
            offloads: vec![Vec::new(); num_groups],
        }
    }

    /// Blocks of a group are to be zeroed.
    pub(crate) fn zero(&mut self, group: GroupId, blocks: &[BlockId]) {
        self.to_zero[usize::from(group)].extend_from_slice(blocks);
    }

    /// The blocks to zero, group by group.
    pub(crate) fn to_zero(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.to_zero.iter().flatten().copied()
    }

    /// Hands out the blocks to zero.
    pub(crate) fn take_to_zero(&mut self) -> Vec<BlockId> {
        self.to_zero.iter_mut().flat_map(std::mem::take).collect()
    }

    /// A block of a group is to be copied to another one.
    pub(crate) fn copy(&mut self, group: GroupId, from: BlockId, to: BlockId) {
        self.copies[usize::from(group)].push((from, to));
    }

    /// The blocks to copy, from and to, group by group.
    pub(crate) fn copies(&self) -> impl Iterator<Item = (BlockId, BlockId)> + '_ {
        self.copies.iter().flatten().copied()
    }

    /// Hands out the blocks to copy, and with them a reference to each.
    pub(crate) fn take_copies(&mut self) -> Vec<(BlockId, BlockId)> {
        self.copies.iter_mut().flat_map(std::mem::take).collect()
    }

    /// A connector may read a block.
    pub(crate) fn offer(&mut self, offload: Offload) {
        self.offloads[usize::from(offload.group)].push(offload);
    }

    /// Takes back what a connector may read of a request in a group.
    pub(crate) fn withdraw(&mut self, group: GroupId, request: RequestId) {
        self.offloads[usize::from(group)].retain(|offload| offload.request != request);
    }

    /// The blocks that a connector may read, group by group.
    pub(crate) fn offloads(&self) -> impl Iterator<Item = &Offload> + '_ {
        self.offloads.iter().flatten()
    }

    /// Hands out the blocks that a connector may read.
    pub(crate) fn take_offloads(&mut self) -> Vec<Offload> {
        self.offloads.iter_mut().flat_map(std::mem::take).collect()
    }
}
