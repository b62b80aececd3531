//! Times of the requests of a run.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::Nanoseconds;

/// The times of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTimes {
    /// The time of the request's arrival.
    pub arrived: Nanoseconds,
    /// The time of the request's first token.
    pub first_token: Option<Nanoseconds>,
    /// The time of the request's latest token.
    pub last_token: Nanoseconds,
}

/// The times of one run, or of all instances together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    /// The end of the latest step.
    pub now: Nanoseconds,
    /// The total duration of steps.
    pub busy: Nanoseconds,
    /// The sum, over all steps, of the duration times the number of requests.
    pub request_time: u128,
    /// The times of each request of the trace.
    pub requests: Vec<RequestTimes>,
    /// The times between the tokens of requests.
    #[serde(with = "gaps")]
    gaps: Histogram<u64>,
}

impl Times {
    /// Returns empty times of `num_requests` requests.
    pub fn new(num_requests: usize) -> Self {
        Self {
            now: 0,
            busy: 0,
            request_time: 0,
            requests: vec![RequestTimes::default(); num_requests],
            gaps: no_gaps(),
        }
    }

    /// Records a step of `running` requests that ends now.
    pub fn step_ends(&mut self, now: Nanoseconds, duration: Nanoseconds, running: usize) {
        self.now = now;
        self.busy += duration;
        self.request_time += u128::from(duration) * running as u128;
    }

    /// Records that a request gets a token now.
    pub fn token(&mut self, request: usize) {
        let times = &mut self.requests[request];
        match times.first_token {
            None => times.first_token = Some(self.now),
            Some(_) => {
                let counted = self.gaps.record(self.now - times.last_token);
                counted.unwrap_or_else(|_| unreachable!("it grows"));
            }
        }
        times.last_token = self.now;
    }

    /// Forgets all but the arrivals.
    pub fn forget(&mut self) {
        let arrived = self.requests.iter().map(|it| it.arrived);
        let requests =
            arrived.map(|arrived| RequestTimes { arrived, ..RequestTimes::default() }).collect();
        *self = Self { requests, ..Self::new(0) };
    }

    /// Returns the times between tokens.
    pub fn gaps(&self) -> &Histogram<u64> {
        &self.gaps
    }

    /// Adds the times of an instance that served `requests`.
    pub fn join(&mut self, other: &Self, requests: impl Iterator<Item = usize>) {
        self.now = self.now.max(other.now);
        self.busy += other.busy;
        self.request_time += other.request_time;
        requests.for_each(|request| self.requests[request] = other.requests[request]);
        // Both histograms resize themselves.
        self.gaps.add(&other.gaps).unwrap_or_else(|_| unreachable!("both grow"));
    }
}

/// Returns an empty histogram with three digits, which resizes itself.
fn no_gaps() -> Histogram<u64> {
    Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits"))
}

/// The serialized form of the gaps.
mod gaps {
    use hdrhistogram::Histogram;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::histogram_counts::HistogramCounts;

    pub fn serialize<S: Serializer>(gaps: &Histogram<u64>, to: S) -> Result<S::Ok, S::Error> {
        HistogramCounts::of(gaps).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Histogram<u64>, D::Error> {
        let mut gaps = super::no_gaps();
        HistogramCounts::deserialize(from)?.record(&mut gaps).map_err(D::Error::custom)?;
        Ok(gaps)
    }
}
