//! How a trace is played, and how a run is watched and ended.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use kvoxide_core::{Error, GroupSpec, Policy};

/// How a trace is played.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The KV cache groups.
    pub groups: Vec<GroupSpec>,
    /// Blocks of the pool, the null block included; `None` for a cache that never evicts.
    pub num_blocks: Option<usize>,
    /// Retention and recycling.
    pub policy: Policy,
    /// Most requests running at once.
    pub concurrency: usize,
    /// Most tokens of a step.
    pub max_batched_tokens: usize,
    /// Requests before this one warm the cache and are left out of sums.
    pub report_from: usize,
    /// Whether to find what a policy that knows the future could hit.
    pub has_bound: bool,
}

/// Shared with other threads during a run.
#[derive(Debug, Default)]
pub struct Control {
    /// Requests finished so far.
    pub finished: AtomicUsize,
    /// Set to stop the run at its next step.
    pub cancelled: AtomicBool,
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// The settings cannot work, or the manager refused a call.
    #[error(transparent)]
    Refused(#[from] Error),
    /// [`Control::cancelled`] was set.
    #[error("the run was cancelled")]
    Cancelled,
}
