//! The settings of a run, and its control from other threads.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use serde::{Deserialize, Deserializer, de};

use kvoxide_core::{Error, GroupSpec, ManagerConfig, OlderRules, Policy};

use crate::baselines::Baseline;
use crate::host::HostMemory;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The KV cache groups.
    pub groups: Vec<GroupSpec>,
    /// The number of blocks in the pool, including the null block; `None` for a cache that never
    /// evicts.
    pub num_blocks: Option<usize>,
    /// The retention policy.
    pub policy: Policy,
    /// A simple policy that orders evictions instead of the default one.
    pub baseline: Option<Baseline>,
    /// The CPU memory of each instance, if it has any.
    pub host: Option<HostMemory>,
    /// The most requests that run at the same time.
    pub concurrency: usize,
    /// The most tokens in a step.
    pub max_batched_tokens: usize,
    /// The index of the first request that counts. The requests before it warm the cache.
    pub report_from: usize,
    /// Whether the clairvoyant bound is computed.
    pub has_bound: bool,
    /// Whether requests run in the same steps as in the trace's recorded schedules.
    pub follows_schedule: bool,
    /// Whether prefixes are cached.
    pub enable_caching: bool,
    /// The rules of the recorded server; `None` for the usual rules.
    pub rules: Option<Rules>,
    /// The rules of a chosen release of vLLM; `None` for the recorded server's release or, without
    /// `rules`, for the newest release.
    pub release: Option<ReleaseRules>,
}

/// The rules in which the supported releases of vLLM differ. The names are the ones in a
/// recording's header.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRules {
    /// Whether hits drop their last block in EAGLE groups even without EAGLE.
    pub drops_flagged_groups: bool,
    /// Whether the state at the end of a prompt is cached there again if it is already cached.
    pub recaches_known_tail: bool,
    /// Other rules of older releases of vLLM.
    #[serde(deserialize_with = "named_rules")]
    pub older_rules: OlderRules,
    /// Whether the tail before a shared-prefix boundary is cached, too.
    pub keep_tail_below_boundary: bool,
}

impl ReleaseRules {
    /// Returns a configuration with these rules.
    pub fn of(&self, config: ManagerConfig) -> ManagerConfig {
        ManagerConfig {
            drops_flagged_groups: self.drops_flagged_groups,
            recaches_known_tail: self.recaches_known_tail,
            older_rules: self.older_rules,
            keep_tail_below_boundary: self.keep_tail_below_boundary,
            ..config
        }
    }
}

/// The settings that a recorded server's scheduler passed to its manager, in addition to the groups
/// and the pool. The names are the ones in a recording's header. Sizes are in tokens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Rules {
    /// The length of the longest sequence.
    pub max_model_len: usize,
    /// Hits in hybrid models are multiples of this many tokens.
    pub scheduler_block_size: usize,
    /// Tokens per block hash.
    pub hash_block_size: usize,
    /// The most tokens of a request in steps whose output is not processed yet.
    pub max_in_flight_tokens: usize,
    /// Whether hits drop their last block for EAGLE.
    pub use_eagle: bool,
    /// Whether hits drop it only in the EAGLE groups.
    pub drops_flagged_groups: bool,
    /// The number of ranks of decode context parallelism.
    pub dcp_world_size: usize,
    /// The number of tokens after a block that the block's hash covers.
    pub num_hash_lookahead_tokens: usize,
    /// Whether states are kept at shared-prefix boundaries.
    pub shared_prefix_checkpoint: bool,
    /// Whether the state at the end of a prompt is cached there again if it is already cached.
    pub recaches_known_tail: bool,
    /// Other rules of older releases of vLLM.
    #[serde(default, deserialize_with = "named_rules")]
    pub older_rules: OlderRules,
    /// The number of prompt tokens that a drafter reads ahead.
    pub num_prefill_lookahead: usize,
    /// The share of the pool that stays free when a request is admitted.
    pub watermark: f64,
    /// Whether the tail before a shared-prefix boundary is cached, too.
    pub keep_tail_below_boundary: bool,
    /// The number of blocks in the pool.
    pub num_blocks: usize,
    /// The number of tokens at the end of a hit that are computed again.
    pub prefix_replay_tokens: usize,
    /// The number of draft tokens in a decode step.
    pub num_spec_tokens: usize,
    /// Whether a step is scheduled before the output of the previous step is known.
    pub is_async: bool,
    /// The number of slots for draft tokens.
    pub num_lookahead_tokens: usize,
    /// Whether a request is admitted only if all of it fits.
    pub reserves_full_input: bool,
    /// Whether the blocks of a request that ends return to the pool only when the steps have ended
    /// that were in flight.
    #[serde(default)]
    pub frees_late: bool,
}

/// Reads the names of rules.
fn named_rules<'de, D: Deserializer<'de>>(names: D) -> Result<OlderRules, D::Error> {
    let names = Vec::<String>::deserialize(names)?;
    OlderRules::named(names.iter().map(String::as_str))
        .map_err(|unknown| de::Error::unknown_variant(unknown, OlderRules::NAMES))
}

impl Rules {
    /// The most tokens of a request in a decode step.
    pub fn most_decoded(rules: Option<&Self>) -> usize {
        1 + rules.map_or(0, |rules| rules.num_spec_tokens)
    }

    /// Returns whether blocks of generated tokens are cached with the output, and not with the
    /// step.
    pub fn caches_late(&self) -> bool {
        self.is_async || self.num_spec_tokens > 0
    }

    /// Returns a configuration with these rules. Requests can be longer than on the server.
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
            older_rules: self.older_rules,
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
    /// The number of finished requests.
    pub finished: AtomicUsize,
    /// Stops the run at its next step when it is set.
    pub cancelled: AtomicBool,
}

/// The reason why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// The settings are invalid, or the manager refused a call.
    #[error(transparent)]
    Refused(#[from] Error),
    /// [`Control::cancelled`] was set.
    #[error("the run was cancelled")]
    Cancelled,
}
