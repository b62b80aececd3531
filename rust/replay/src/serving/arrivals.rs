//! Arrivals of requests.

use kvoxide_core::Error;

use crate::clock::Nanoseconds;
use crate::trace::Trace;

/// The times at which requests arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Arrivals {
    /// In the order of the trace, each as soon as fewer requests are in progress than may run.
    #[default]
    Full,
    /// At the times of the trace.
    Trace {
        /// Seconds of the trace per second.
        speed: f64,
    },
}

impl Arrivals {
    /// Checks that the speed is in its range.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Self::Trace { speed } if !(MIN_SPEED..=MAX_SPEED).contains(speed) => {
                let message = format!("speed is {speed}; it can be {MIN_SPEED} to {MAX_SPEED}");
                Err(Error::Config(message))
            }
            _ => Ok(()),
        }
    }
}

const MIN_SPEED: f64 = 1e-3;
const MAX_SPEED: f64 = 1e6;

/// The requests that have not arrived yet.
#[derive(Clone, Debug)]
pub enum Source {
    /// Requests arrive as others end.
    Full {
        /// Index of the next request.
        next: usize,
        /// Number of requests.
        num_requests: usize,
        /// Most requests in progress.
        limit: usize,
    },
    /// Requests arrive at given times.
    Timed {
        /// Times and indices of requests, the last first.
        left: Vec<(Nanoseconds, usize)>,
    },
}

impl Source {
    /// Returns the requests of a trace, or an error if a time is needed and missing.
    pub fn new(arrivals: Arrivals, trace: &Trace, limit: usize) -> Result<Self, Error> {
        let num_requests = trace.requests().len();
        match arrivals {
            Arrivals::Full => Ok(Self::Full { next: 0, num_requests, limit }),
            Arrivals::Trace { speed } => Ok(Self::Timed { left: timed(trace, speed)? }),
        }
    }

    /// Returns the time of the next arrival, if requests are in progress as given.
    pub fn next_time(&self, now: Nanoseconds, num_in_progress: usize) -> Option<Nanoseconds> {
        match self {
            Self::Full { next, num_requests, limit } => {
                (next < num_requests && num_in_progress < *limit).then_some(now)
            }
            Self::Timed { left } => left.last().map(|&(time, _)| time),
        }
    }

    /// Takes the next request.
    pub fn take(&mut self) -> Option<usize> {
        match self {
            Self::Full { next, num_requests, .. } => {
                *next += 1;
                (*next <= *num_requests).then(|| *next - 1)
            }
            Self::Timed { left } => left.pop().map(|(_, request)| request),
        }
    }
}

fn timed(trace: &Trace, speed: f64) -> Result<Vec<(Nanoseconds, usize)>, Error> {
    let arrivals = trace.requests().iter().enumerate().map(|(index, request)| {
        let missing = || {
            let message = format!(
                "request {} of the trace says no time at which it arrived (a timestamp of at \
                 least 0)",
                index + 1
            );
            Error::Config(message)
        };
        Ok((request.arrival.ok_or_else(missing)?, index))
    });
    let mut arrivals: Vec<(u64, usize)> = arrivals.collect::<Result<_, Error>>()?;
    arrivals.sort_unstable();
    let first = arrivals.first().map_or(0, |&(time, _)| time);
    let since_first = |time: u64| ((time - first) as f64 * 1e3 / speed).round() as Nanoseconds;
    arrivals.iter_mut().for_each(|(time, _)| *time = since_first(*time));
    arrivals.reverse();
    Ok(arrivals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceRequest;

    fn trace(arrivals: &[Option<u64>]) -> Trace {
        let mut trace = Trace::default();
        for &arrival in arrivals {
            let request = TraceRequest { arrival, ..TraceRequest::of_tokens(vec![1], 1) };
            trace.push(request).expect("tokens");
        }
        trace
    }

    #[test]
    fn times_count_from_the_first_arrival_and_are_in_order() {
        let trace = trace(&[Some(3_000_000), Some(1_000_000), Some(3_000_000)]);
        let arrivals = Arrivals::Trace { speed: 2.0 };
        let mut source = Source::new(arrivals, &trace, 1).expect("times");
        assert_eq!(source.next_time(7, 9), Some(0));
        assert_eq!(source.take(), Some(1));
        assert_eq!(source.next_time(7, 9), Some(1_000_000_000));
        assert_eq!([source.take(), source.take(), source.take()], [Some(0), Some(2), None]);
    }

    #[test]
    fn a_request_without_a_time_is_named() {
        let refused = Source::new(Arrivals::Trace { speed: 1.0 }, &trace(&[Some(1), None]), 1);
        let message = refused.expect_err("no time").to_string();
        assert!(message.contains("request 2 of the trace says no time"), "{message}");
    }

    #[test]
    fn at_the_limit_a_request_arrives_when_another_has_ended() {
        let mut source =
            Source::new(Arrivals::Full, &trace(&[None, None]), 1).expect("no times needed");
        assert_eq!(source.next_time(5, 0), Some(5));
        assert_eq!(source.take(), Some(0));
        assert_eq!(source.next_time(6, 1), None);
        assert_eq!(source.take(), Some(1));
        assert_eq!(source.next_time(6, 0), None);
    }
}
