//! How a manager is set up.

use super::policy::Policy;
use crate::error::{Error, Result};
use crate::group::GroupSpec;

/// What a manager is made of. Lengths in tokens.
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// Blocks of the pool, the null block included.
    pub num_blocks: usize,
    /// The KV cache groups.
    pub groups: Vec<GroupSpec>,
    /// The longest sequence.
    pub max_model_len: usize,
    /// Hits of hybrid models are multiples of it; the least common multiple of the block sizes if
    /// not given.
    pub scheduler_block_size: Option<usize>,
    /// Tokens per block hash; the greatest common divisor of the block sizes if not given.
    pub hash_block_size: Option<usize>,
    /// Tokens scheduled but not settled; `max_model_len` if not given.
    pub max_in_flight_tokens: Option<usize>,
    /// Whether blocks are cached at all.
    pub enable_caching: bool,
    /// Whether hits drop their last block: in the groups marked for it, or in all if none is.
    pub use_eagle: bool,
    /// Whether the groups marked for it drop that block even without `use_eagle` (vLLM before
    /// 0.33.0).
    pub drops_flagged_groups: bool,
    /// Ranks of decode context parallelism, which share the blocks of most groups out among them.
    pub dcp_world_size: usize,
    /// Tokens behind a block that its hash covers.
    pub num_hash_lookahead_tokens: usize,
    /// Whether states are kept at shared-prefix boundaries inside a block, where hits drop a block.
    pub enable_mamba_shared_prefix_checkpoint: bool,
    /// Whether a state that is cached where its prompt ends is cached there once more (vLLM before
    /// 0.33.0).
    pub recaches_known_tail: bool,
    /// Prompt tokens that a multi-module MTP drafter reads ahead of a chunk.
    pub num_prefill_lookahead: usize,
    /// Whether the manager keeps events.
    pub enable_events: bool,
    /// Share of the pool kept free when a waiting request is admitted beside running ones.
    pub watermark: f64,
    /// Whether newly allocated blocks are listed for zeroing.
    pub needs_zeroing: bool,
    /// Whether retention with EAGLE also keeps the tail one block below a shared-prefix boundary
    /// (vLLM from 0.33.0 on).
    pub keep_tail_below_boundary: bool,
    /// Whether the pool keeps what a metrics collector asks for; see [`crate::pool::Observation`].
    pub observe: bool,
    /// Retention and recycling.
    pub policy: Policy,
}

impl ManagerConfig {
    /// A pool of `num_blocks` for `groups`, with everything else at its default.
    pub fn new(num_blocks: usize, groups: Vec<GroupSpec>, max_model_len: usize) -> Self {
        Self {
            num_blocks,
            groups,
            max_model_len,
            scheduler_block_size: None,
            hash_block_size: None,
            max_in_flight_tokens: None,
            enable_caching: true,
            use_eagle: false,
            drops_flagged_groups: false,
            dcp_world_size: 1,
            num_hash_lookahead_tokens: 0,
            enable_mamba_shared_prefix_checkpoint: false,
            recaches_known_tail: false,
            num_prefill_lookahead: 0,
            enable_events: false,
            watermark: 0.0,
            needs_zeroing: false,
            keep_tail_below_boundary: true,
            observe: false,
            policy: Policy::default(),
        }
    }

    /// Checks that the pool holds the null block and the shortest request: a block in each group.
    pub fn check_holds_a_request(&self) -> Result<()> {
        let least = self.groups.len() + 1;
        if self.num_blocks >= least {
            return Ok(());
        }
        Err(Error::Config(format!(
            "num_blocks is {}; the null block and one block for each of the {} KV cache groups \
             need at least {least}",
            self.num_blocks,
            self.groups.len()
        )))
    }
}
