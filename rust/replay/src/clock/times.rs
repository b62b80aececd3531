//! What the clock shows for each request of a run.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::Nanoseconds;

/// Moments of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTimes {
    /// When it arrived.
    pub arrived: Nanoseconds,
    /// When its first token was there.
    pub first_token: Option<Nanoseconds>,
    /// When its latest token was there.
    pub last_token: Nanoseconds,
}

/// The moments of one run, or of all instances together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    /// The end of the latest step.
    pub now: Nanoseconds,
    /// Time in steps.
    pub busy: Nanoseconds,
    /// Time in steps, times the requests in each.
    pub request_time: u128,
    /// Of each request of the trace.
    pub requests: Vec<RequestTimes>,
    /// Times between the tokens of a request, of all requests.
    #[serde(with = "gaps")]
    gaps: Histogram<u64>,
}

impl Times {
    /// Of so many requests of which nothing is known.
    pub fn new(num_requests: usize) -> Self {
        Self {
            now: 0,
            busy: 0,
            request_time: 0,
            requests: vec![RequestTimes::default(); num_requests],
            gaps: no_gaps(),
        }
    }

    /// A step of so many requests has run until now.
    pub fn step_ends(&mut self, now: Nanoseconds, duration: Nanoseconds, running: usize) {
        self.now = now;
        self.busy += duration;
        self.request_time += u128::from(duration) * running as u128;
    }

    /// A request has another token now.
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

    /// Times between tokens.
    pub fn gaps(&self) -> &Histogram<u64> {
        &self.gaps
    }

    /// Takes in an instance's times, of which `requests` went through it.
    pub fn join(&mut self, other: &Self, requests: impl Iterator<Item = usize>) {
        self.now = self.now.max(other.now);
        self.busy += other.busy;
        self.request_time += other.request_time;
        requests.for_each(|request| self.requests[request] = other.requests[request]);
        // Both grow as far as they have to.
        self.gaps.add(&other.gaps).unwrap_or_else(|_| unreachable!("both grow"));
    }
}

/// Three digits of up to 584 years: what it counts decides how much memory it takes.
fn no_gaps() -> Histogram<u64> {
    Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits"))
}

/// How the gaps are serialized.
mod gaps {
    use hdrhistogram::Histogram;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::counts::Counts;

    pub fn serialize<S: Serializer>(gaps: &Histogram<u64>, to: S) -> Result<S::Ok, S::Error> {
        Counts::of(gaps).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Histogram<u64>, D::Error> {
        let mut gaps = super::no_gaps();
        Counts::deserialize(from)?.record(&mut gaps).map_err(D::Error::custom)?;
        Ok(gaps)
    }
}
