//! Changes of blocks from which residency metrics are computed.

use crate::block::BlockId;

/// A change of a block from which residency metrics are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// This many blocks are allocated. An observation of each one follows.
    Taking(usize),
    /// A block was allocated.
    Taken(BlockId),
    /// A hit added a reference to a block.
    Touched(BlockId),
    /// A block was evicted by id.
    Evicted(BlockId),
}
