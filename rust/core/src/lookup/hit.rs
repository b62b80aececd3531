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

/// The hit on which all groups agree.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// The blocks of each group.
    pub blocks: Vec<GroupBlocks>,
    /// Tokens of the hit.
    pub length: usize,
    /// Tokens beyond the hit that some group has cached: a shared prefix that a sparse group has
    /// not cached.
    pub num_uncached_common_prefix_tokens: usize,
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

impl From<SearchResult> for PrefixHit {
    fn from(found: SearchResult) -> Self {
        let shared_prefix_boundary = match found.num_uncached_common_prefix_tokens {
            0 => 0,
            uncached => found.length + uncached,
        };
        Self { blocks: Arc::new(found.blocks), length: found.length, shared_prefix_boundary }
    }
}
