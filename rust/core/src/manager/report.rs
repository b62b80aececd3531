//! Reports statistics of retention: how many blocks are in which state, what was evicted, and what
//! adaptive retention decided.

use super::Manager;
use super::args::AllocateArgs;
use crate::group::Group;
use crate::pool::{PoolStatistics, SampleCounts, ScoringFunction};
use crate::request::RequestView;
use crate::retention::DefaultHits;

/// Numbers of cached blocks or of evictions, for two kinds of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ByKind {
    /// The number for groups that need the whole prefix for a hit.
    pub full: u64,
    /// The number for windows, chunks and states, whose hits need only a tail.
    pub tail: u64,
}

/// The tokens of all requests, counted when the requests were admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Admitted {
    /// The number of prompt tokens.
    pub prompt_tokens: u64,
    /// The number of prompt tokens that were hit.
    pub hit_tokens: u64,
    /// The number of hit tokens in blocks with generated tokens. It is 0 without adaptive
    /// retention, and 0 if no group needs the whole prefix.
    pub hit_answer_tokens: u64,
}

impl Admitted {
    /// Counts a request that gets its first blocks. `num_answer_blocks` of its hit's blocks have
    /// generated tokens. A preempted request has generated tokens and hits its own blocks; it was
    /// already counted.
    pub(super) fn count(
        &mut self,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
        groups: &[Group],
        num_answer_blocks: u64,
    ) {
        if request.num_tokens == request.num_prompt_tokens {
            self.prompt_tokens += request.num_prompt_tokens as u64;
            self.hit_tokens += args.num_new_computed_tokens as u64;
            self.hit_answer_tokens += num_answer_tokens(args, groups, num_answer_blocks);
        }
    }
}

/// The number of blocks in each state. Every block but the null block is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// The number of blocks in use.
    pub in_use: usize,
    /// The number of free cached blocks that are neither pinned nor protected.
    pub evictable: usize,
    /// The number of free cached blocks that are pinned or protected.
    pub protected: usize,
    /// The number of free blocks without a key.
    pub empty: usize,
}

/// Statistics of retention since the manager was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RetentionReport {
    /// The current scoring function; `None` without adaptive retention.
    pub scoring_function: Option<ScoringFunction>,
    /// The number of blocks in use.
    pub in_use: u64,
    /// The number of free cached blocks that are neither pinned nor protected.
    pub evictable: ByKind,
    /// The number of free cached blocks that are evicted last: pinned, or protected while a request
    /// runs.
    pub protected: u64,
    /// The number of free blocks without a key.
    pub empty: u64,
    /// The number of evictions. Without adaptive retention, counts start when
    /// [`crate::pool::PrefixIndex::count_evictions_by_group`] is called.
    pub evictions: ByKind,
    /// The tokens of admitted requests.
    pub admitted: Admitted,
    /// The counts of the shadow caches; `None` without adaptive retention.
    pub sample: Option<SampleCounts>,
    /// The hits that vLLM's own policy would have had. If the manager decides together with CPU
    /// memory, hits in both, with vLLM's LRU in CPU memory.
    pub default_hits: DefaultHits,
}

impl Manager {
    /// Returns the token counts of the requests that were admitted.
    pub fn admitted(&self) -> Admitted {
        self.admitted
    }

    /// Returns how many blocks are in which state. Takes time proportional to the pool.
    pub fn count_blocks(&self) -> BlockCounts {
        let PoolStatistics { in_use, empty, protected, evictable } = PoolStatistics::of(&self.pool);
        BlockCounts { in_use, evictable: evictable.iter().sum(), protected, empty }
    }

    /// Returns the statistics. Takes time proportional to the pool.
    pub fn retention_report(&self) -> RetentionReport {
        let statistics = PoolStatistics::of(&self.pool);
        let shadow = self.retention.shadow_report(&self.pool);
        let evictions = self.pool.index().evictions_by_group().unwrap_or_default();
        RetentionReport {
            scoring_function: shadow.map(|shadow| shadow.in_force),
            in_use: statistics.in_use as u64,
            evictable: by_kind(
                &self.groups,
                statistics.evictable.iter().map(|&blocks| blocks as u64),
            ),
            protected: statistics.protected as u64,
            empty: statistics.empty as u64,
            evictions: by_kind(&self.groups, evictions.iter().copied()),
            admitted: self.admitted,
            sample: shadow.map(|shadow| shadow.counts),
            default_hits: self
                .follower()
                .map_or_else(|| self.default_hits(), |follower| follower.default_hits()),
        }
    }

    /// Returns the hits that vLLM's own policy would have had in this pool.
    pub(crate) fn default_hits(&self) -> DefaultHits {
        let Admitted { prompt_tokens, hit_tokens, .. } = self.admitted;
        self.retention.default_hits(&self.pool, prompt_tokens, hit_tokens)
    }
}

/// Returns how many tokens of a hit are in blocks with generated tokens. It is their share of the
/// blocks of groups that need the whole prefix.
fn num_answer_tokens(args: &AllocateArgs<'_>, groups: &[Group], num_answer_blocks: u64) -> u64 {
    if num_answer_blocks == 0 {
        return 0;
    }
    let hits = groups.iter().zip(args.new_computed_blocks);
    let full = hits.filter(|(group, _)| group.is_cacheable && !group.is_sparse);
    let num_blocks: u64 = full.map(|(_, hit)| hit.len() as u64).sum();
    let num_tokens = args.num_new_computed_tokens as u64;
    (num_tokens * num_answer_blocks).checked_div(num_blocks).unwrap_or(0)
}

/// Returns the sum of the counts for each kind of group.
pub(super) fn by_kind(groups: &[Group], counts: impl Iterator<Item = u64>) -> ByKind {
    let mut sums = ByKind::default();
    for (group, count) in groups.iter().zip(counts) {
        match group.is_prefix_closed {
            true => sums.full += count,
            false => sums.tail += count,
        }
    }
    sums
}
