//! Selects intervals. If too few blocks are free, drops the intervals that end last.

use std::collections::BinaryHeap;

/// Units of a prefix that a request hits if they stay cached from one allocated step to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReuseInterval {
    /// The first step after whose allocation the units must be cached while they are free.
    pub from: u32,
    /// The step in which the units are hit, and so in use.
    pub until: u32,
    /// The request that hits the units.
    pub request: u32,
    /// The number of units.
    pub num_units: u32,
}

/// Returns how many units of each request are dropped so that each step keeps at most `capacity`
/// units. The sum is as small as possible.
pub fn num_dropped(
    mut intervals: Vec<ReuseInterval>,
    capacity: &[usize],
    num_requests: usize,
) -> Vec<usize> {
    intervals.sort_unstable_by_key(|interval| interval.from);
    let mut intervals =
        intervals.into_iter().filter(|interval| interval.from < interval.until).peekable();
    let mut kept = KeptUnits::new(capacity.len(), num_requests);
    for (step, &capacity) in capacity.iter().enumerate() {
        kept.end(step);
        while let Some(interval) = intervals.next_if(|interval| interval.from as usize == step) {
            kept.add(interval);
        }
        kept.cut_to(capacity);
    }
    kept.num_dropped
}

/// The units that one step keeps.
struct KeptUnits {
    num_units: usize,
    /// For each step, the number of units whose interval ends there.
    ending: Vec<usize>,
    /// The intervals by their end, from last to first. Ended intervals are below all others.
    by_end: BinaryHeap<(u32, u32, u32)>,
    num_dropped: Vec<usize>,
}

impl KeptUnits {
    fn new(num_steps: usize, num_requests: usize) -> Self {
        Self {
            num_units: 0,
            ending: vec![0; num_steps + 1],
            by_end: BinaryHeap::new(),
            num_dropped: vec![0; num_requests],
        }
    }

    fn add(&mut self, interval: ReuseInterval) {
        self.num_units += interval.num_units as usize;
        self.ending[interval.until as usize] += interval.num_units as usize;
        self.by_end.push((interval.until, interval.request, interval.num_units));
    }

    fn end(&mut self, step: usize) {
        self.num_units -= self.ending[step];
    }

    /// Drops the units that end last until at most `capacity` units are kept.
    fn cut_to(&mut self, capacity: usize) {
        while self.num_units > capacity {
            let Some((until, request, num_units)) = self.by_end.pop() else { return };
            let num_dropped = (self.num_units - capacity).min(num_units as usize);
            self.num_units -= num_dropped;
            self.ending[until as usize] -= num_dropped;
            self.num_dropped[request as usize] += num_dropped;
            let rest = num_units - num_dropped as u32;
            if rest > 0 {
                self.by_end.push((until, request, rest));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn interval(from: u32, until: u32, request: u32, num_units: u32) -> ReuseInterval {
        ReuseInterval { from, until, request, num_units }
    }

    #[test]
    fn units_that_end_last_are_dropped() {
        let intervals = vec![interval(0, 9, 0, 3), interval(1, 3, 1, 2), interval(4, 6, 2, 3)];
        assert_eq!(num_dropped(intervals.clone(), &[3; 9], 3), [3, 0, 0]);
        assert_eq!(num_dropped(intervals.clone(), &[5; 9], 3), [1, 0, 0]);
        assert_eq!(num_dropped(intervals, &[6; 9], 3), [0, 0, 0]);
    }

    #[test]
    fn units_that_are_hit_in_the_same_step_need_no_capacity() {
        assert_eq!(num_dropped(vec![interval(1, 1, 0, 5)], &[0; 3], 1), [0]);
    }

    #[test]
    fn shrinking_capacity_drops_kept_units() {
        let intervals = vec![interval(0, 4, 0, 4), interval(0, 2, 1, 4)];
        assert_eq!(num_dropped(intervals.clone(), &[8, 8, 8, 4], 2), [0, 0]);
        assert_eq!(num_dropped(intervals, &[8, 5, 8, 4], 2), [3, 0]);
    }

    /// Returns the most units that can be kept. It tries every choice.
    fn most_kept(intervals: &[ReuseInterval], capacity: &[usize]) -> usize {
        let fits = |chosen: u32| {
            let is_kept = |i: &usize| chosen >> i & 1 == 1;
            let num_kept = |step: usize| {
                let is_open = |interval: &ReuseInterval| {
                    (interval.from..interval.until).contains(&(step as u32))
                };
                (0..intervals.len()).filter(is_kept).filter(|&i| is_open(&intervals[i])).count()
            };
            capacity.iter().enumerate().all(|(step, &capacity)| num_kept(step) <= capacity)
        };
        let choices = (0..1 << intervals.len()).filter(|&chosen| fits(chosen));
        choices.map(|chosen: u32| chosen.count_ones() as usize).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn as_few_units_as_possible_are_dropped(
            intervals in prop::collection::vec((0..8_u32, 0..8_u32), 0..9),
            capacity in prop::collection::vec(0..4_usize, 9),
        ) {
            let interval_of = |(request, &(a, b)): (usize, &(u32, u32))| {
                interval(a.min(b), a.max(b), request as u32, 1)
            };
            let intervals: Vec<_> = intervals.iter().enumerate().map(interval_of).collect();
            let dropped: usize = num_dropped(intervals.clone(), &capacity, intervals.len()).iter().sum();
            prop_assert_eq!(intervals.len() - dropped, most_kept(&intervals, &capacity));
        }
    }
}
