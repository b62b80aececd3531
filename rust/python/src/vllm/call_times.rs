//! Times a sample of the calls of an engine. A call that is not in the sample costs one counter.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// The mean number of calls from one sample to the next.
const MEAN_GAP: u32 = 64;

/// The upper bounds of the histograms' buckets, in nanoseconds.
const BOUNDS: [u64; 14] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    100_000_000,
];

/// The calls that are timed.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimedCall {
    GetComputedBlocks,
    AllocateSlots,
    Free,
}

impl TimedCall {
    const ALL: [Self; 3] = [Self::GetComputedBlocks, Self::AllocateSlots, Self::Free];

    fn name(self) -> &'static str {
        match self {
            Self::GetComputedBlocks => "get_computed_blocks",
            Self::AllocateSlots => "allocate_slots",
            Self::Free => "free",
        }
    }
}

/// The times of one kind of call.
#[derive(Debug, Default)]
struct Times {
    /// The calls of each bucket; the last one has those above all bounds.
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

/// The times of the calls in the sample.
///
/// Calls run one at a time, so counts are read and written without a lock. Other threads may read
/// them.
#[derive(Debug, Default)]
pub(super) struct CallTimes {
    /// The calls up to the next sample; 0 while nothing is timed.
    remaining: AtomicU32,
    random: AtomicU32,
    times: [Times; TimedCall::ALL.len()],
}

impl CallTimes {
    /// Starts to time calls.
    pub(super) fn switch_on(&self) {
        self.random.store(0x9e37_79b9, Ordering::Relaxed);
        self.remaining.store(1, Ordering::Relaxed);
    }

    /// Returns a timer for a call in the sample. The call ends when the timer is dropped.
    #[inline]
    pub(super) fn start(&self, call: TimedCall) -> Option<Timer<'_>> {
        match self.remaining.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(self.start_sampled(call)),
            more => {
                self.remaining.store(more - 1, Ordering::Relaxed);
                None
            }
        }
    }

    #[cold]
    fn start_sampled(&self, call: TimedCall) -> Timer<'_> {
        self.remaining.store(self.next_gap(), Ordering::Relaxed);
        Timer { times: &self.times[call as usize], started: Instant::now() }
    }

    /// Returns the number of calls up to the next sample. It is random, because a fixed number could
    /// select the same request in every step.
    fn next_gap(&self) -> u32 {
        let mut random = self.random.load(Ordering::Relaxed);
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        self.random.store(random, Ordering::Relaxed);
        1 + random % (2 * MEAN_GAP - 1)
    }

    /// Returns the upper bounds of the buckets, in seconds.
    pub(super) fn bounds() -> Vec<f64> {
        BOUNDS.map(|bound| bound as f64 / 1e9).to_vec()
    }

    /// Returns the name of each timed call, the calls of each bucket, and their time in seconds.
    pub(super) fn totals(&self) -> impl Iterator<Item = (&'static str, Vec<u64>, f64)> + '_ {
        TimedCall::ALL.into_iter().zip(&self.times).map(|(call, times)| {
            let counts = times.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
            (call.name(), counts, times.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9)
        })
    }
}

/// Measures one call.
pub(super) struct Timer<'a> {
    times: &'a Times,
    started: Instant,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        let nanoseconds = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|&bound| bound < nanoseconds);
        self.times.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.times.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn num_timed(times: &CallTimes) -> u64 {
        times.totals().flat_map(|(_, counts, _)| counts).sum()
    }

    #[test]
    fn nothing_is_timed_before_it_is_switched_on() {
        let times = CallTimes::default();
        (0..1_000).for_each(|_| drop(times.start(TimedCall::Free)));
        assert_eq!(num_timed(&times), 0);
    }

    #[test]
    fn about_one_call_in_64_is_timed_in_every_place_of_a_step() {
        let times = CallTimes::default();
        times.switch_on();
        let mut places = [0; 64];
        for at in 0..64_000 {
            places[at % 64] += u32::from(times.start(TimedCall::AllocateSlots).is_some());
        }
        assert!((900..1_100).contains(&num_timed(&times)), "{}", num_timed(&times));
        assert!(places.iter().all(|&num| (2..40).contains(&num)), "{places:?}");
    }

    #[test]
    fn a_call_is_in_the_bucket_of_its_time() {
        let times = CallTimes::default();
        times.switch_on();
        let timer = times.start(TimedCall::Free).expect("the first call is timed");
        std::thread::sleep(std::time::Duration::from_millis(3));
        drop(timer);
        let (name, counts, seconds) = times.totals().last().expect("a call");
        assert_eq!((name, counts.iter().sum::<u64>()), ("free", 1));
        assert!(seconds >= 0.003);
        let bucket = counts.iter().position(|&count| count == 1).expect("a bucket");
        let bounds = CallTimes::bounds();
        assert!(bounds[bucket - 1] < seconds && bounds.get(bucket).is_none_or(|&b| seconds <= b));
    }
}
