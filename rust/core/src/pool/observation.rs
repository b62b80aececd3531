//! Changes of blocks that residency metrics are collected from.

use crate::block::BlockId;

/// A change of a block that residency metrics are collected from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// So many blocks are allocated; an observation of each follows.
    Taking(usize),
    /// A block was allocated.
    Taken(BlockId),
    /// A hit added a reference to a block.
    Touched(BlockId),
    /// A block was evicted by id.
    Evicted(BlockId),
}
