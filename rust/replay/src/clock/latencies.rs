//! Computes latencies of requests.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{Nanoseconds, Times, seconds};

/// Quantiles of a duration in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
}

/// The latencies of some requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// The time from the arrival of a request to its first token; `None` without any token.
    pub time_to_first_token: Option<Quantiles>,
    /// The time between tokens of a request, to three digits; `None` if no request has two tokens.
    pub time_between_tokens: Option<Quantiles>,
}

impl Latencies {
    /// Computes the latencies: the times to the first token of `requests`, and the times between
    /// all tokens.
    pub fn of(times: &Times, requests: impl Iterator<Item = usize>) -> Self {
        let waited = |request: usize| {
            let times = &times.requests[request];
            Some(times.first_token? - times.arrived)
        };
        let mut waits: Vec<_> = requests.filter_map(waited).collect();
        waits.sort_unstable();
        Self {
            time_to_first_token: of_sorted(&waits),
            time_between_tokens: of_histogram(times.gaps()),
        }
    }
}

/// Returns the quantiles of sorted values.
fn of_sorted(values: &[Nanoseconds]) -> Option<Quantiles> {
    let last = values.len().checked_sub(1)?;
    let at = |percent: usize| {
        let rank = (values.len() * percent).div_ceil(100);
        seconds(values[rank.saturating_sub(1).min(last)])
    };
    Some(Quantiles { p50: at(50), p90: at(90), p99: at(99) })
}

fn of_histogram(values: &Histogram<u64>) -> Option<Quantiles> {
    let at = |quantile: f64| seconds(values.value_at_quantile(quantile));
    let quantiles = Quantiles { p50: at(0.5), p90: at(0.9), p99: at(0.99) };
    (!values.is_empty()).then_some(quantiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occur() {
        let values: Vec<_> = (1..=10).map(|i| i * 1_000_000_000).collect();
        assert_eq!(of_sorted(&values), Some(Quantiles { p50: 5.0, p90: 9.0, p99: 10.0 }));
        assert_eq!(of_sorted(&values[..1]), Some(Quantiles { p50: 1.0, p90: 1.0, p99: 1.0 }));
        assert_eq!(of_sorted(&[]), None);
    }

    #[test]
    fn waits_are_from_arrival_and_gaps_from_token_to_token() {
        let mut times = Times::new(2);
        times.requests[1].arrived = 1_000_000_000;
        for now in [3, 4, 6] {
            times.step_ends(now * 1_000_000_000, 1_000_000_000, 1);
            times.token(1);
        }
        let latencies = Latencies::of(&times, 0..2);
        let first = latencies.time_to_first_token.expect("one has a token");
        assert_eq!((first.p50, first.p99), (2.0, 2.0));
        let between = latencies.time_between_tokens.expect("it has three");
        assert!((between.p50 - 1.0).abs() < 1e-3 && (between.p99 - 2.0).abs() < 2e-3);
        assert_eq!(Latencies::of(&Times::new(3), 0..3), Latencies::default());
    }
}
