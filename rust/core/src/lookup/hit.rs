//! Results of look-ups.

use std::sync::Arc;

use crate::request::GroupBlocks;

/// A cached prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixHit {
    /// The blocks of each group, with null blocks where a group needs none.
    pub blocks: Arc<Vec<GroupBlocks>>,
    /// The length of the hit, in tokens.
    pub length: usize,
    /// The end of a shared prefix that a sparse group has not cached; 0 if there is none.
    pub shared_prefix_boundary: usize,
}

impl PrefixHit {
    /// Creates a hit. No shared prefix is longer than the hit.
    pub(crate) fn new(length: usize, blocks: Vec<GroupBlocks>) -> Self {
        Self { blocks: Arc::new(blocks), length, shared_prefix_boundary: 0 }
    }
}

/// The longest prefix from which the full-attention groups can continue.
#[derive(Clone, Debug)]
pub struct DeepestHit {
    /// The blocks of each group, for the part of the prefix that the group has.
    pub blocks: Vec<GroupBlocks>,
    /// The length of the hit, in tokens.
    pub length: usize,
    /// Whether another group has less of the prefix. Then a connector must bring the rest.
    pub is_diverged: bool,
}
