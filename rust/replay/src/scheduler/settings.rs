//! The settings of a run, and its control from other threads.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use kvoxide_core::{Error, GroupSpec, ManagerConfig, Policy};

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The KV cache groups.
    pub groups: Vec<GroupSpec>,
    /// Blocks of the pool, the null block included; `None` for a cache that never evicts.
    pub num_blocks: Option<usize>,
    /// The retention policy.
    pub policy: Policy,
    /// Most requests running at once.
    pub concurrency: usize,
    /// Most tokens of a step.
    pub max_batched_tokens: usize,
    /// Index of the first request that counts; the ones before warm the cache.
    pub report_from: usize,
    /// Whether the clairvoyant bound is computed.
    pub has_bound: bool,
    /// Whether requests run in the steps of the trace's recorded schedules.
    pub follows_schedule: bool,
    /// The rules of the recorded server; `None` for the usual ones.
    pub rules: Option<Rules>,
}

/// The settings that a recorded server's scheduler passed to its manager in addition to the groups
/// and the pool. Sizes are in tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Length of the longest sequence.
    pub max_model_len: usize,
    /// Tokens of which hits in hybrid models are multiples.
    pub scheduler_block_size: usize,
    /// Tokens per block hash.
    pub hash_block_size: usize,
    /// Most tokens of a request whose output is not processed yet.
    pub max_in_flight_tokens: usize,
    /// Whether hits drop their last block for EAGLE.
    pub use_eagle: bool,
    /// Whether they do so in the groups of EAGLE alone.
    pub drops_flagged_groups: bool,
    /// Ranks of decode context parallelism.
    pub dcp_world_size: usize,
    /// Tokens after a block that its hash covers.
    pub num_hash_lookahead_tokens: usize,
    /// Whether states are kept at shared-prefix boundaries.
    pub shared_prefix_checkpoint: bool,
    /// Whether a known state is cached at the end of its prompt again.
    pub recaches_known_tail: bool,
    /// Prompt tokens that a drafter reads ahead.
    pub num_prefill_lookahead: usize,
    /// Share of the pool that stays free when a request is admitted.
    pub watermark: f64,
    /// Whether the tail below a shared-prefix boundary is cached too.
    pub keep_tail_below_boundary: bool,
    /// Blocks of the pool.
    pub num_blocks: usize,
    /// Tokens at the end of a hit that are computed again.
    pub prefix_replay_tokens: usize,
    /// Draft tokens of a decode step.
    pub num_spec_tokens: usize,
    /// Whether a step is scheduled before the output of the one before is known.
    pub is_async: bool,
    /// Slots for draft tokens.
    pub num_lookahead_tokens: usize,
    /// Whether a request is admitted only where all of it fits.
    pub reserves_full_input: bool,
}

impl Rules {
    /// Whether blocks of generated tokens are cached with the output, not with the step.
    pub fn caches_late(&self) -> bool {
        self.is_async || self.num_spec_tokens > 0
    }

    /// Returns a configuration with these rules. Requests may be longer than the server's.
    pub fn of(&self, config: ManagerConfig) -> ManagerConfig {
        ManagerConfig {
            max_model_len: config.max_model_len.max(self.max_model_len),
            scheduler_block_size: Some(self.scheduler_block_size),
            hash_block_size: Some(self.hash_block_size),
            max_in_flight_tokens: Some(self.max_in_flight_tokens),
            use_eagle: self.use_eagle,
            drops_flagged_groups: self.drops_flagged_groups,
            dcp_world_size: self.dcp_world_size,
            num_hash_lookahead_tokens: self.num_hash_lookahead_tokens,
            enable_mamba_shared_prefix_checkpoint: self.shared_prefix_checkpoint,
            recaches_known_tail: self.recaches_known_tail,
            num_prefill_lookahead: self.num_prefill_lookahead,
            watermark: self.watermark,
            keep_tail_below_boundary: self.keep_tail_below_boundary,
            ..config
        }
    }
}

/// The control of a run from other threads.
#[derive(Debug, Default)]
pub struct Control {
    /// Number of finished requests.
    pub finished: AtomicUsize,
    /// Set to stop the run at its next step.
    pub cancelled: AtomicBool,
}

/// The reason for which a run ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// The settings are invalid, or the manager refused a call.
    #[error(transparent)]
    Refused(#[from] Error),
    /// [`Control::cancelled`] was set.
    #[error("the run was cancelled")]
    Cancelled,
}
