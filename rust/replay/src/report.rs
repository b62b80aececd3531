//! The report of a run.

use std::time::Duration;

use hdrhistogram::{Histogram, RecordError};
use serde::{Deserialize, Serialize};

use crate::clairvoyant::Bound;
use kvoxide_core::{Outcome, RetentionReport};

use crate::cache::Occupancy;
use crate::histogram_counts::HistogramCounts;
use crate::host::HostReport;
use crate::losses::{Losses, Shared};
use crate::outcomes::Outcomes;

/// The most points of a timeline.
pub(crate) const TIMELINE_POINTS: usize = 1000;
/// The most points with statistics of retention. Each of them reads all blocks.
pub(crate) const RETENTION_POINTS: usize = 100;
/// The most samples of CPU memory. Each of them reads all chunks.
pub(crate) const HOST_SAMPLES: usize = 20;

/// The report of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestReport {
    /// The number of prompt tokens.
    pub prompt_tokens: usize,
    /// The number of generated tokens.
    pub output_tokens: usize,
    /// The number of prompt tokens that were hit at the request's first admission; `None` if it was
    /// rejected.
    pub hit_tokens: Option<usize>,
    /// The number of hit tokens that were loaded from CPU memory.
    pub loaded_tokens: usize,
    /// The number of hit tokens in blocks with generated tokens; `None` if they are not counted.
    pub hit_answer_tokens: Option<usize>,
    /// The prompt tokens that had been computed before and were not hit, by reason.
    pub losses: Losses,
    /// The part of the prompt that earlier requests computed.
    pub shared: Shared,
    /// Whether the request did not read the cache.
    pub skips_cache: bool,
    /// The number of preemptions.
    pub preemptions: usize,
}

impl RequestReport {
    /// Returns the numbers of prompt tokens that were not hit: the lost tokens for each reason,
    /// then the tokens that were computed for the first time.
    pub fn unhit(&self) -> [usize; 4] {
        let Losses { evicted_full, evicted_tail, never_cached } = self.losses;
        let known = self.hit_tokens.unwrap_or(0) + self.losses.num_tokens();
        [evicted_full, evicted_tail, never_cached, self.prompt_tokens - known]
    }

    /// Returns the number of prompt tokens with each outcome. A replay counts tokens with another
    /// salt or adapter as first-time tokens. Hits on answers count as
    /// other hits if they are not counted apart.
    pub fn outcomes(&self) -> Outcomes {
        let counts = match self.skips_cache {
            true => vec![(Outcome::NotCacheable, self.prompt_tokens)],
            false => self.outcomes_of_reading(),
        };
        let of = |outcome| counts.iter().find(|(given, _)| *given == outcome).map_or(0, |it| it.1);
        Outcomes { tokens: Outcome::ALL.map(|outcome| of(outcome) as u32) }
    }

    fn outcomes_of_reading(&self) -> Vec<(Outcome, usize)> {
        let hit = self.hit_tokens.unwrap_or(0);
        let hit_host = self.loaded_tokens.min(hit);
        let hit_gpu = hit - hit_host;
        let hit_answer = self.hit_answer_tokens.unwrap_or(0).min(hit_gpu);
        let Losses { evicted_full, evicted_tail, never_cached } = self.losses;
        let could_be_hit = hit + self.losses.num_tokens();
        let shared = self.shared.num_tokens.max(could_be_hit);
        // The last token has to be computed, even if all of the prompt was computed before.
        let last = usize::from(shared == self.prompt_tokens && shared > could_be_hit);
        vec![
            (Outcome::HitGpu, hit_gpu - hit_answer),
            (Outcome::HitHost, hit_host),
            (Outcome::HitAnswer, hit_answer),
            (Outcome::FirstTime, self.prompt_tokens - shared),
            (Outcome::BelowBlock, shared - could_be_hit - last),
            (Outcome::EvictedFull, evicted_full),
            (Outcome::EvictedTail, evicted_tail),
            (Outcome::NeverCached, never_cached),
            (Outcome::NotCacheable, last),
        ]
    }
}

/// The occupancy of the pool at one moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// The number of finished requests.
    pub finished: usize,
    /// The occupancy of the pool.
    pub occupancy: Occupancy,
}

/// Hits and statistics of retention up to one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RetentionPoint {
    /// The number of finished requests.
    pub finished: usize,
    /// The number of prompt tokens of admitted requests that count.
    pub prompt_tokens: usize,
    /// The number of these tokens that were hit.
    pub hit_tokens: usize,
    /// The manager's statistics.
    pub retention: RetentionReport,
}

/// The distribution of a duration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "HistogramCounts", into = "HistogramCounts")]
pub struct Durations {
    nanoseconds: Histogram<u64>,
}

impl From<Durations> for HistogramCounts {
    fn from(durations: Durations) -> Self {
        Self::of(&durations.nanoseconds)
    }
}

impl TryFrom<HistogramCounts> for Durations {
    type Error = RecordError;

    fn try_from(counts: HistogramCounts) -> Result<Self, RecordError> {
        let mut durations = Self::default();
        counts.record(&mut durations.nanoseconds)?;
        Ok(durations)
    }
}

impl Default for Durations {
    fn default() -> Self {
        // The bounds are 1 ns and 100 s, at three digits.
        let nanoseconds = Histogram::new_with_bounds(1, 100_000_000_000, 3);
        Self { nanoseconds: nanoseconds.unwrap_or_else(|_| unreachable!("constant bounds")) }
    }
}

impl Durations {
    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        self.nanoseconds.saturating_record(duration.as_nanos().max(1) as u64);
    }

    /// Adds the durations of another distribution.
    pub fn join(&mut self, other: &Self) {
        let same = self.nanoseconds.add(&other.nanoseconds);
        same.unwrap_or_else(|_| unreachable!("the same bounds"));
    }

    /// Returns the median, the 99th percentile and the maximum, in seconds.
    pub fn summary(&self) -> (f64, f64, f64) {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        (
            seconds(self.nanoseconds.value_at_quantile(0.5)),
            seconds(self.nanoseconds.value_at_quantile(0.99)),
            seconds(self.nanoseconds.max()),
        )
    }
}

/// The report of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// One entry per request of the trace.
    pub requests: Vec<RequestReport>,
    /// The index of the first request that counts. The requests before it warm the cache.
    pub report_from: usize,
    /// The number of steps that scheduled something.
    pub steps: usize,
    /// The most blocks in use at the same time.
    pub peak_used_blocks: usize,
    /// The occupancy at the end of the run.
    pub last: Occupancy,
    /// The occupancy over the run.
    pub timeline: Vec<TimelinePoint>,
    /// Hits and retention over the run.
    pub retention: Vec<RetentionPoint>,
    /// The durations of scheduling calls: look-up and allocation for one request in one step.
    pub schedule: Durations,
    /// The durations of all scheduling calls of a step together.
    pub step: Durations,
    /// The duration of the run.
    pub wall: Duration,
    /// The clairvoyant bound under the run's schedule, if the settings ask for it.
    pub bound: Option<Bound>,
    /// The counts of CPU memory, if there is any.
    pub host: Option<HostReport>,
}

impl Report {
    /// Returns the requests that count and were not rejected.
    pub fn counted(&self) -> impl Iterator<Item = &RequestReport> {
        self.counting().flatten()
    }

    /// Returns all requests in the order of the trace; `None` for requests that do not count or
    /// were rejected.
    pub fn counting(&self) -> impl Iterator<Item = Option<&RequestReport>> {
        let counts = |&(index, request): &(usize, &RequestReport)| {
            index >= self.report_from && request.hit_tokens.is_some()
        };
        self.requests
            .iter()
            .enumerate()
            .map(move |each| Some(each).filter(counts).map(|each| each.1))
    }

    /// Returns the number of prompt tokens of admitted requests that count, and how many of them
    /// were hit.
    pub fn admitted(&self) -> (usize, usize) {
        self.counted().fold((0, 0), |(prompt_tokens, hit_tokens), request| {
            (prompt_tokens + request.prompt_tokens, hit_tokens + request.hit_tokens.unwrap_or(0))
        })
    }

    /// Returns the number of requests that can never fit into the pool.
    pub fn num_rejected(&self) -> usize {
        self.requests.iter().skip(self.report_from).filter(|r| r.hit_tokens.is_none()).count()
    }
}
