//! What retention came to so far: where blocks are, what was evicted, and what adaptive retention
//! decided.

use super::Manager;
use super::args::AllocateArgs;
use crate::group::Group;
use crate::pool::{Ordering, SampleCounts};
use crate::request::RequestView;

/// Counts of cached blocks, or of evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ByKind {
    /// Of groups that need all of a prefix for a hit.
    pub full: u64,
    /// Of windows, chunks and states, of which a hit needs what is at its end.
    pub tail: u64,
}

/// Prompt tokens of requests when they were admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Admitted {
    /// All of them.
    pub prompt_tokens: u64,
    /// Those that were hit.
    pub hit_tokens: u64,
}

impl Admitted {
    /// A request gets its first blocks. One that comes back after it generated tokens hits its own
    /// blocks, and is not counted again.
    pub(super) fn count(&mut self, request: &RequestView<'_>, args: &AllocateArgs<'_>) {
        if request.num_tokens == request.num_prompt_tokens {
            self.prompt_tokens += request.num_prompt_tokens as u64;
            self.hit_tokens += args.num_new_computed_tokens as u64;
        }
    }
}

/// What retention came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RetentionReport {
    /// The ordering in force; `None` without adaptive retention.
    pub ordering: Option<Ordering>,
    /// Blocks that somebody uses.
    pub in_use: u64,
    /// Free cached blocks, but for those that are held.
    pub waiting: ByKind,
    /// Free cached blocks that are recycled last: pinned, or held for a request that runs.
    pub held: u64,
    /// Free blocks without a key.
    pub empty: u64,
    /// Evictions since they are counted by kind: always, with adaptive retention; else since
    /// [`crate::BlockPool::count_evictions_by_group`].
    pub evictions: ByKind,
    /// Hits at admission.
    pub admitted: Admitted,
    /// What the sample counted; `None` without adaptive retention.
    pub sample: Option<SampleCounts>,
}

impl Manager {
    /// What retention came to so far, in time proportional to the pool.
    pub fn retention_report(&self) -> RetentionReport {
        let statistics = self.pool.statistics();
        let adaptive = self.pool.adaptive();
        let evictions = self.pool.index().evictions_by_group().unwrap_or_default();
        RetentionReport {
            ordering: adaptive.map(|adaptive| adaptive.ordering()),
            in_use: statistics.in_use as u64,
            waiting: by_kind(&self.groups, statistics.waiting.iter().map(|&blocks| blocks as u64)),
            held: statistics.held as u64,
            empty: statistics.empty as u64,
            evictions: by_kind(&self.groups, evictions.iter().copied()),
            admitted: self.admitted,
            sample: adaptive.map(|adaptive| *adaptive.sample_counts()),
        }
    }
}

/// What is counted for each group, by kind.
fn by_kind(groups: &[Group], counts: impl Iterator<Item = u64>) -> ByKind {
    let mut sums = ByKind::default();
    for (group, count) in groups.iter().zip(counts) {
        match group.is_prefix_closed {
            true => sums.full += count,
            false => sums.tail += count,
        }
    }
    sums
}
