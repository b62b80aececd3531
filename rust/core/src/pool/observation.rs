//! What befalls blocks, for collectors of residency metrics.

use crate::block::BlockId;

/// What befalls a block, for a collector of residency metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// So many blocks are taken from the free queue, as the next observations tell.
    Taking(usize),
    /// Taken from the free queue.
    Taken(BlockId),
    /// Given one more reference by a hit.
    Touched(BlockId),
    /// Taken out of the prefix cache on request.
    Evicted(BlockId),
}
