//! What a run counts.

use std::time::Duration;

use hdrhistogram::{Histogram, RecordError};
use serde::{Deserialize, Serialize};

use crate::bound::Bound;
use kvoxide_core::RetentionReport;

use crate::cache::Occupancy;
use crate::counts::Counts;
use crate::losses::Losses;

/// Most points of a timeline.
pub const TIMELINE_POINTS: usize = 1000;
/// Most points that tell what was retained: each takes a look at all blocks.
pub const RETENTION_POINTS: usize = 100;

/// What came of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestReport {
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Tokens it generated.
    pub output_tokens: usize,
    /// Prompt tokens found cached at its first admission; `None` if it was rejected.
    pub hit_tokens: Option<usize>,
    /// Prompt tokens that were computed before that and not found, by why.
    pub losses: Losses,
    /// How often it was preempted.
    pub preemptions: usize,
}

impl RequestReport {
    /// Prompt tokens that were not hit, by why: lost in each way, and computed for the first time.
    pub fn unhit(&self) -> [usize; 4] {
        let Losses { evicted_full, evicted_tail, never_cached } = self.losses;
        let known = self.hit_tokens.unwrap_or(0) + self.losses.num_tokens();
        [evicted_full, evicted_tail, never_cached, self.prompt_tokens - known]
    }
}

/// The pool at one moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Requests finished.
    pub finished: usize,
    /// How the pool is used.
    pub occupancy: Occupancy,
}

/// What was hit and retained up to one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RetentionPoint {
    /// Requests finished.
    pub finished: usize,
    /// Prompt tokens of the counted requests that were admitted.
    pub prompt_tokens: usize,
    /// Those of them that they hit.
    pub hit_tokens: usize,
    /// What the manager says.
    pub retention: RetentionReport,
}

/// The distribution of a duration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Counts", into = "Counts")]
pub struct Durations {
    nanoseconds: Histogram<u64>,
}

impl From<Durations> for Counts {
    fn from(durations: Durations) -> Self {
        Self::of(&durations.nanoseconds)
    }
}

impl TryFrom<Counts> for Durations {
    type Error = RecordError;

    fn try_from(counts: Counts) -> Result<Self, RecordError> {
        let mut durations = Self::default();
        counts.record(&mut durations.nanoseconds)?;
        Ok(durations)
    }
}

impl Default for Durations {
    fn default() -> Self {
        // From 1 ns to 100 s at three digits.
        let nanoseconds = Histogram::new_with_bounds(1, 100_000_000_000, 3);
        Self { nanoseconds: nanoseconds.unwrap_or_else(|_| unreachable!("constant bounds")) }
    }
}

impl Durations {
    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        self.nanoseconds.saturating_record(duration.as_nanos().max(1) as u64);
    }

    /// Takes in others.
    pub fn join(&mut self, other: &Self) {
        let same = self.nanoseconds.add(&other.nanoseconds);
        same.unwrap_or_else(|_| unreachable!("the same bounds"));
    }

    /// The median, the 99th percentile and the longest, in seconds.
    pub fn summary(&self) -> (f64, f64, f64) {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        (
            seconds(self.nanoseconds.value_at_quantile(0.5)),
            seconds(self.nanoseconds.value_at_quantile(0.99)),
            seconds(self.nanoseconds.max()),
        )
    }
}

/// The whole run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// One entry per request of the trace.
    pub requests: Vec<RequestReport>,
    /// Requests before this one warm the cache and are left out of sums.
    pub report_from: usize,
    /// Steps that scheduled something.
    pub steps: usize,
    /// Most blocks in use at once.
    pub peak_used_blocks: usize,
    /// The pool at the end.
    pub last: Occupancy,
    /// The pool over the run.
    pub timeline: Vec<TimelinePoint>,
    /// What was hit and retained over the run.
    pub retention: Vec<RetentionPoint>,
    /// Time of one scheduling call: look-up and allocation for one request in one step.
    pub schedule: Durations,
    /// Time of all scheduling calls of one step.
    pub step: Durations,
    /// Time of the run.
    pub wall: Duration,
    /// What a policy that knows the future could hit under the run's schedule, if it was asked for.
    pub bound: Option<Bound>,
}

impl Report {
    /// The requests that count and were not rejected.
    pub fn counted(&self) -> impl Iterator<Item = &RequestReport> {
        self.counting().flatten()
    }

    /// The requests in the order of the trace, `None` for those that do not count or were rejected.
    pub fn counting(&self) -> impl Iterator<Item = Option<&RequestReport>> {
        let counts = |&(index, request): &(usize, &RequestReport)| {
            index >= self.report_from && request.hit_tokens.is_some()
        };
        self.requests
            .iter()
            .enumerate()
            .map(move |each| Some(each).filter(counts).map(|each| each.1))
    }

    /// Prompt tokens of those that were admitted and count, and how many of them were hit.
    pub fn admitted(&self) -> (usize, usize) {
        self.counted().fold((0, 0), |(prompt_tokens, hit_tokens), request| {
            (prompt_tokens + request.prompt_tokens, hit_tokens + request.hit_tokens.unwrap_or(0))
        })
    }

    /// Requests that can never fit the pool.
    pub fn num_rejected(&self) -> usize {
        self.requests.iter().skip(self.report_from).filter(|r| r.hit_tokens.is_none()).count()
    }
}
