//! Results of look-ups.

use std::sync::Arc;

use crate::request::GroupBlocks;

/// A cached prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixHit {
    /// The blocks of each group; null where a group does not need them.
    pub blocks: Arc<Vec<GroupBlocks>>,
    /// Tokens of the hit.
    pub length: usize,
    /// Where a shared prefix ends that a sparse group has not cached; 0 for none.
    pub shared_prefix_boundary: usize,
}

impl PrefixHit {
    /// A hit without a shared prefix beyond it.
    pub(crate) fn new(length: usize, blocks: Vec<GroupBlocks>) -> Self {
        Self { blocks: Arc::new(blocks), length, shared_prefix_boundary: 0 }
    }
}

/// The prefix from which full attention alone can continue.
#[derive(Clone, Debug)]
pub struct DeepestHit {
    /// The blocks of each group, as far as the group has them.
    pub blocks: Vec<GroupBlocks>,
    /// Tokens of the hit.
    pub length: usize,
    /// Whether another group has less of the prefix, so that a connector has to bring the rest.
    pub is_diverged: bool,
}
