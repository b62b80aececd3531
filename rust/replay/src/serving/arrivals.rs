//! Arrivals of requests.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use kvoxide_core::Error;

use crate::clock::Nanoseconds;
use crate::trace::{Event, Trace, TraceRequest, WaitTime};

/// The rule for the times at which requests arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Arrivals {
    /// In the order of the trace. Each request arrives as soon as fewer requests are in progress
    /// than can run.
    #[default]
    Full,
    /// At the times of the trace. Only a request whose time is not known waits for others.
    Trace {
        /// The number of seconds of the trace per second.
        speed: f64,
    },
    /// At the times of the trace. A request that waits for others arrives with the trace's delay
    /// after them.
    Closed {
        /// The number of seconds of the trace per second.
        speed: f64,
    },
}

impl Arrivals {
    /// Checks that the speed is in its range.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Self::Trace { speed } | Self::Closed { speed }
                if !(MIN_SPEED..=MAX_SPEED).contains(speed) =>
            {
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
    /// Requests arrive when others end.
    Full {
        /// The index of the next request.
        next: usize,
        /// The number of requests.
        num_requests: usize,
        /// The most requests in progress.
        limit: usize,
    },
    /// Requests arrive at given times.
    Timed(Timed),
}

/// Requests with arrival times.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// The times and indices of requests, from earliest to latest.
    left: BinaryHeap<Reverse<(Nanoseconds, usize)>>,
    /// Requests that wait for others. For each, the number of events that it waits for, and the
    /// time before which it does not arrive.
    waiting: HashMap<usize, (usize, Nanoseconds)>,
    /// For each request and event, the requests that wait for it, with their delays.
    followers: HashMap<(usize, Event), Vec<(usize, Nanoseconds)>>,
}

impl Source {
    /// Creates the source of a trace's requests. Fails if a time is needed and missing.
    pub fn new(arrivals: Arrivals, trace: &Trace, limit: usize) -> Result<Self, Error> {
        let num_requests = trace.requests().len();
        match arrivals {
            Arrivals::Full => Ok(Self::Full { next: 0, num_requests, limit }),
            Arrivals::Trace { speed } => Ok(Self::Timed(Timed::new(trace, speed, false)?)),
            Arrivals::Closed { speed } => Ok(Self::Timed(Timed::new(trace, speed, true)?)),
        }
    }

    /// Returns the time of the next arrival, if `num_in_progress` requests are in progress.
    pub fn next_time(&self, now: Nanoseconds, num_in_progress: usize) -> Option<Nanoseconds> {
        match self {
            Self::Full { next, num_requests, limit } => {
                (next < num_requests && num_in_progress < *limit).then_some(now)
            }
            Self::Timed(timed) => timed.left.peek().map(|&Reverse((time, _))| time),
        }
    }

    /// Takes the next request.
    pub fn take(&mut self) -> Option<usize> {
        match self {
            Self::Full { next, num_requests, .. } => {
                *next += 1;
                (*next <= *num_requests).then(|| *next - 1)
            }
            Self::Timed(timed) => timed.take(),
        }
    }

    /// Returns whether requests wait for others.
    pub fn has_waiting(&self) -> bool {
        matches!(self, Self::Timed(timed) if !timed.waiting.is_empty())
    }

    /// Notes that a request was answered at time `at`. Requests that wait for the answer can arrive
    /// from `now` on.
    pub fn answered(&mut self, request: usize, at: Nanoseconds, now: Nanoseconds) {
        if let Self::Timed(timed) = self {
            timed.happened(request, Event::Answer, at, now);
        }
    }
}

impl Timed {
    fn new(trace: &Trace, speed: f64, is_closed: bool) -> Result<Self, Error> {
        let requests = || trace.requests().iter().enumerate();
        let of_speed =
            |microseconds: u64| (microseconds as f64 * 1e3 / speed).round() as Nanoseconds;
        let is_first = |request: &&TraceRequest| request.wait.is_none();
        let times = trace.requests().iter().filter(is_first).filter_map(|first| first.arrival);
        let start = times.min().unwrap_or(0);
        let since_start = |time: u64| of_speed(time.saturating_sub(start));
        if let Some(never) = trace.first_never_arriving() {
            let message = format!("request {} of the trace waits forever", never + 1);
            return Err(Error::Config(message));
        }
        let mut timed = Self::default();
        for (index, request) in requests() {
            match (&request.wait, request.arrival) {
                (Some(wait), time) if is_closed || wait.time != WaitTime::Recorded => {
                    let has_earliest = wait.time == WaitTime::Earliest;
                    let earliest = time.filter(|_| has_earliest).map_or(0, since_start);
                    timed.waiting.insert(index, (wait.after.len(), earliest));
                    for after in &wait.after {
                        let key = (after.request as usize, after.event);
                        let follower = (index, of_speed(after.delay));
                        timed.followers.entry(key).or_default().push(follower);
                    }
                }
                (_, Some(time)) => timed.left.push(Reverse((since_start(time), index))),
                (_, None) => {
                    let message = format!(
                        "request {} of the trace has no time of arrival; give it a timestamp of at \
                         least 0",
                        index + 1
                    );
                    return Err(Error::Config(message));
                }
            }
        }
        Ok(timed)
    }

    fn take(&mut self) -> Option<usize> {
        let Reverse((time, request)) = self.left.pop()?;
        self.happened(request, Event::Arrival, time, time);
        Some(request)
    }

    /// Notes an event of a request at time `at`. Requests that wait for the event can arrive from
    /// `now` on.
    fn happened(&mut self, request: usize, event: Event, at: Nanoseconds, now: Nanoseconds) {
        for (follower, delay) in self.followers.remove(&(request, event)).unwrap_or_default() {
            let Some((num_left, earliest)) = self.waiting.get_mut(&follower) else { continue };
            (*num_left, *earliest) = (*num_left - 1, at.saturating_add(delay).max(*earliest));
            if *num_left == 0 {
                self.left.push(Reverse(((*earliest).max(now), follower)));
                self.waiting.remove(&follower);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{After, Wait};

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
    fn a_request_arrives_after_all_that_it_waits_for() {
        let mut trace = trace(&[Some(0), Some(2_000_000)]);
        let wait = Wait::for_answers(vec![0, 1], 500_000, WaitTime::Unknown);
        let request = TraceRequest { wait, ..TraceRequest::of_tokens(vec![1], 1) };
        trace.push(request).expect("tokens");
        let mut source = Source::new(Arrivals::Trace { speed: 2.0 }, &trace, 1).expect("times");
        assert_eq!([source.take(), source.take(), source.take()], [Some(0), Some(1), None]);
        source.answered(0, 9, 9);
        assert_eq!(source.next_time(9, 0), None);
        source.answered(1, 7, 10);
        assert_eq!(source.next_time(9, 0), Some(250_000_009));
        assert_eq!([source.take(), source.take()], [Some(2), None]);
    }

    #[test]
    fn a_request_may_wait_for_arrivals_and_a_time_too() {
        let mut trace = trace(&[Some(1_000), Some(9_000)]);
        let after = After { request: 0, event: Event::Arrival, delay: 3_000 };
        let of_time = |time| if time == 0 { WaitTime::Unknown } else { WaitTime::Earliest };
        for time in [0, 7_000, 2_000] {
            let (arrival, wait) = (Some(time), Wait::of(vec![after], of_time(time)));
            let request = TraceRequest { arrival, wait, ..TraceRequest::of_tokens(vec![1], 1) };
            trace.push(request).expect("tokens");
        }
        let mut source = Source::new(Arrivals::Trace { speed: 1.0 }, &trace, 1).expect("times");
        let mut next = || source.next_time(0, 0).zip(source.take());
        let expected = [(0, 0), (3_000_000, 2), (3_000_000, 4), (6_000_000, 3), (8_000_000, 1)];
        expected.iter().for_each(|&expected| assert_eq!(next(), Some(expected)));
        assert!(!source.has_waiting());
    }

    #[test]
    fn in_an_open_loop_a_request_arrives_at_its_recorded_time() {
        let mut trace = trace(&[Some(0)]);
        for (arrival, time) in [(2_000, WaitTime::Recorded), (3_000, WaitTime::Unknown)] {
            let (arrival, wait) = (Some(arrival), Wait::for_answers(vec![0], 5_000, time));
            let request = TraceRequest { arrival, wait, ..TraceRequest::of_tokens(vec![1], 1) };
            trace.push(request).expect("tokens");
        }
        let arrived = |arrivals| {
            let mut source = Source::new(arrivals, &trace, 1).expect("times");
            let mut arrived = vec![];
            while let Some(time) = source.next_time(0, 0) {
                let request = source.take().expect("a request");
                source.answered(request, time + 1, time + 1);
                arrived.push((request, time));
            }
            arrived
        };
        let open = arrived(Arrivals::Trace { speed: 1.0 });
        assert_eq!(open, [(0, 0), (1, 2_000_000), (2, 5_000_001)]);
        let closed = arrived(Arrivals::Closed { speed: 1.0 });
        assert_eq!(closed, [(0, 0), (1, 5_000_001), (2, 5_000_001)]);
    }

    #[test]
    fn a_wait_without_end_is_refused() {
        let mut trace = trace(&[Some(0)]);
        let wait = Wait::for_answers(vec![7], 0, WaitTime::Unknown);
        trace.push(TraceRequest { wait, ..TraceRequest::of_tokens(vec![1], 1) }).expect("tokens");
        let refused = Source::new(Arrivals::Trace { speed: 1.0 }, &trace, 1).expect_err("a wait");
        assert!(refused.to_string().contains("request 2 of the trace waits forever"), "{refused}");
    }

    #[test]
    fn a_request_without_a_time_is_named() {
        let refused = Source::new(Arrivals::Trace { speed: 1.0 }, &trace(&[Some(1), None]), 1);
        let message = refused.expect_err("no time").to_string();
        assert!(message.contains("request 2 of the trace has no time of arrival"), "{message}");
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
