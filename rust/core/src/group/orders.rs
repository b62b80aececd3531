//! What the worker is to do before the next step, as one value.

use crate::block::{BlockId, GroupId};
use crate::request::RequestId;

/// Work that calls have ordered and nobody has fetched yet.
#[derive(Clone, Debug)]
pub struct WorkOrders {
    /// Blocks to zero, group by group.
    to_zero: Vec<Vec<BlockId>>,
    /// Blocks to copy, in this order: from, to.
    copies: Vec<(BlockId, BlockId)>,
    /// Blocks that a connector may read, until the request ends or the step does.
    offloads: Vec<Offload>,
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

impl WorkOrders {
    /// No orders yet for so many groups.
    pub fn new(num_groups: usize) -> Self {
        Self { to_zero: vec![Vec::new(); num_groups], copies: Vec::new(), offloads: Vec::new() }
    }

    /// Blocks of a group are to be zeroed.
    pub fn zero(&mut self, group: GroupId, blocks: &[BlockId]) {
        self.to_zero[usize::from(group)].extend_from_slice(blocks);
    }

    /// The blocks to zero, group by group.
    pub fn to_zero(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.to_zero.iter().flatten().copied()
    }

    /// Hands out the blocks to zero.
    pub fn take_to_zero(&mut self) -> Vec<BlockId> {
        self.to_zero.iter_mut().flat_map(std::mem::take).collect()
    }

    /// Hands out the blocks to copy.
    pub fn take_copies(&mut self) -> Vec<(BlockId, BlockId)> {
        std::mem::take(&mut self.copies)
    }

    /// Hands out the blocks that a connector may read.
    pub fn take_offloads(&mut self) -> Vec<Offload> {
        std::mem::take(&mut self.offloads)
    }
}
