//! The settings of a run, and its control from other threads.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use kvoxide_core::{Error, GroupSpec, Policy};

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
