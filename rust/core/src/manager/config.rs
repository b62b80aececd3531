//! The configuration of a manager.

use crate::error::{Error, Result};
use crate::group::GroupSpec;
use crate::retention::{OlderRules, Policy};

/// The configuration of a manager. Lengths and sizes are in tokens unless they are called blocks.
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// The number of blocks in the pool, including the null block.
    pub num_blocks: usize,
    /// The KV cache groups.
    pub groups: Vec<GroupSpec>,
    /// The length of the longest sequence.
    pub max_model_len: usize,
    /// In a hybrid model, the length of a hit is a multiple of this many tokens. If not given, it
    /// is the least common multiple of the block sizes.
    pub scheduler_block_size: Option<usize>,
    /// Tokens per block hash. If not given, it is the greatest common divisor of the block sizes.
    pub hash_block_size: Option<usize>,
    /// The most tokens of a request in steps whose output is not processed yet. If not given, it is
    /// `max_model_len`.
    pub max_in_flight_tokens: Option<usize>,
    /// Whether blocks are cached.
    pub enable_caching: bool,
    /// Whether hits drop their last block in the EAGLE groups. If no group is an EAGLE group, hits
    /// drop it in all groups.
    pub use_eagle: bool,
    /// Whether hits drop their last block in the EAGLE groups even without `use_eagle`, as in
    /// older releases of vLLM.
    pub drops_flagged_groups: bool,
    /// The number of ranks of decode context parallelism. They divide each block of most groups
    /// among them.
    pub dcp_world_size: usize,
    /// The number of tokens after a block that the block's hash covers, too.
    pub num_hash_lookahead_tokens: usize,
    /// Whether states at shared-prefix boundaries inside a block are kept, if hits drop a block.
    pub enable_mamba_shared_prefix_checkpoint: bool,
    /// Whether the state at the end of a prompt is cached there again if it is already cached, as in
    /// older releases of vLLM.
    pub recaches_known_tail: bool,
    /// Other rules of older releases of vLLM.
    pub older_rules: OlderRules,
    /// The number of prompt tokens that a multi-module MTP drafter reads after a chunk.
    pub num_prefill_lookahead: usize,
    /// Whether the manager records events.
    pub enable_events: bool,
    /// The share of the pool, from 0 to below 1, that stays free when a waiting request is admitted
    /// while other requests run.
    pub watermark: f64,
    /// Whether the worker zeroes newly allocated blocks.
    pub needs_zeroing: bool,
    /// Whether retention with EAGLE also caches the tail one block before a shared-prefix
    /// boundary, as in newer releases of vLLM.
    pub keep_tail_below_boundary: bool,
    /// Whether the pool records observations for a metrics collector; see
    /// [`crate::pool::Observation`].
    pub observe: bool,
    /// The policy that decides which blocks stay cached and in which order they are evicted.
    pub policy: Policy,
}

impl ManagerConfig {
    /// Returns a configuration with these values. Its other fields have their defaults.
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
            older_rules: OlderRules::default(),
            num_prefill_lookahead: 0,
            enable_events: false,
            watermark: 0.0,
            needs_zeroing: false,
            keep_tail_below_boundary: true,
            observe: false,
            policy: Policy::default(),
        }
    }

    /// Checks that the pool is large enough for the null block and one block per group.
    pub fn check_holds_a_request(&self) -> Result<()> {
        let least = self.groups.len() + 1;
        if self.num_blocks >= least {
            return Ok(());
        }
        Err(Error::Config(format!(
            "num_blocks is {}. The null block and one block for each of the {} KV cache groups \
             need at least {least}",
            self.num_blocks,
            self.groups.len()
        )))
    }
}
