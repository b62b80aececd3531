//! What a look-up answers.

use std::sync::Arc;

use crate::request::GroupBlocks;

/// A prefix found in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixHit {
    /// The blocks of each group; null where a group does not need them.
    pub blocks: Arc<Vec<GroupBlocks>>,
    /// Tokens of the hit.
    pub length: usize,
    /// Where a shared prefix ends that a sparse group has not kept; 0 for nowhere.
    pub shared_prefix_boundary: usize,
}

/// What the groups agreed on.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// The blocks of each group.
    pub blocks: Vec<GroupBlocks>,
    /// Tokens of the hit.
    pub length: usize,
    /// Tokens that some group has cached beyond it: a shared prefix that a sparse group has not
    /// kept.
    pub num_uncached_common_prefix_tokens: usize,
}

/// What full attention alone can continue from.
#[derive(Clone, Debug)]
pub struct DeepestHit {
    /// The blocks of each group, as far as it has them.
    pub blocks: Vec<GroupBlocks>,
    /// Tokens of the hit.
    pub length: usize,
    /// Whether another group has less of it, so that a connector has to bring the rest.
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
