//! Ids of hash blocks, stored as runs. A trace numbers new blocks in the order in which they
//! appear, so most ids are consecutive.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Consecutive ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    /// The first id.
    first: i64,
    /// The number of ids up to the end of this run, including earlier runs.
    end: u32,
}

/// A sequence of ids. Its size grows with the number of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashIds {
    runs: Box<[Run]>,
}

impl HashIds {
    /// Returns the number of ids.
    pub fn len(&self) -> usize {
        self.runs.last().map_or(0, |run| run.end as usize)
    }

    /// Returns whether the sequence is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns whether the ids are 0, 1, 2 and so on.
    pub fn count_from_zero(&self) -> bool {
        matches!(&*self.runs, [run] if run.first == 0)
    }

    /// Returns the id at a position below the length.
    pub fn at(&self, position: usize) -> i64 {
        let run = self.run_at(position);
        self.runs[run].first + (position - self.start(run)) as i64
    }

    /// Returns all ids in order.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        self.iter_from(0)
    }

    /// Returns the ids from a position on.
    pub fn iter_from(&self, position: usize) -> impl Iterator<Item = i64> + '_ {
        (self.run_at(position)..self.runs.len()).flat_map(move |run| {
            let Run { first, end } = self.runs[run];
            let start = self.start(run);
            let skipped = position.saturating_sub(start);
            first + skipped as i64..first + (end as usize - start) as i64
        })
    }

    /// Returns the first `count` ids as ranges.
    pub fn runs_to(&self, count: usize) -> impl Iterator<Item = Range<i64>> + '_ {
        (0..self.runs.len()).map_while(move |run| {
            let Run { first, end } = self.runs[run];
            let start = self.start(run);
            (start < count).then(|| first..first + (count.min(end as usize) - start) as i64)
        })
    }

    /// Returns the largest id.
    pub fn max(&self) -> Option<i64> {
        let last = |run: usize| self.at(self.runs[run].end as usize - 1);
        (0..self.runs.len()).map(last).max()
    }

    /// Returns the number of ids from `position` on that are equal to the other sequence's ids.
    pub fn num_equal(&self, other: &Self, position: usize) -> usize {
        let most = self.len().min(other.len());
        let mut at = position;
        while at < most && self.at(at) == other.at(at) {
            // The ids are equal until the end of the shorter run.
            let ends = [self, other].map(|ids| ids.runs[ids.run_at(at)].end as usize);
            at = ends[0].min(ends[1]);
        }
        at.min(most).saturating_sub(position)
    }

    /// Returns the ids of several ranges, which may be empty.
    pub fn of_runs(ranges: impl IntoIterator<Item = Range<i64>>) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        let (mut next, mut len) = (None, 0);
        for Range { start, end } in ranges.into_iter().filter(|range| !range.is_empty()) {
            len += (end - start) as u32;
            match runs.last_mut() {
                Some(run) if next == Some(start) => run.end = len,
                _ => runs.push(Run { first: start, end: len }),
            }
            next = Some(end);
        }
        Self { runs: runs.into_boxed_slice() }
    }

    /// Returns the ids with `by` added to each that is not negative.
    pub fn shifted(mut self, by: i64) -> Self {
        self.runs.iter_mut().filter(|run| run.first >= 0).for_each(|run| run.first += by);
        self
    }

    fn start(&self, run: usize) -> usize {
        run.checked_sub(1).map_or(0, |before| self.runs[before].end as usize)
    }

    fn run_at(&self, position: usize) -> usize {
        self.runs.partition_point(|run| run.end as usize <= position)
    }
}

impl FromIterator<i64> for HashIds {
    fn from_iter<T: IntoIterator<Item = i64>>(ids: T) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        let (mut next, mut len) = (None, 0);
        for id in ids {
            len += 1;
            match runs.last_mut() {
                Some(run) if next == Some(id) => run.end = len,
                _ => runs.push(Run { first: id, end: len }),
            }
            next = id.checked_add(1);
        }
        Self { runs: runs.into_boxed_slice() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs() -> impl Strategy<Value = Vec<i64>> {
        let run = (0..40_i64, 1..6_i64).prop_map(|(first, len)| first..first + len);
        prop::collection::vec(run, 0..8).prop_map(|runs| runs.into_iter().flatten().collect())
    }

    #[test]
    fn consecutive_ids_are_one_run() {
        let ids: HashIds = (7..700).chain([3, 4, i64::MAX]).collect();
        assert_eq!((ids.len(), ids.runs.len(), ids.max()), (696, 3, Some(i64::MAX)));
        assert_eq!([ids.at(0), ids.at(692), ids.at(693), ids.at(695)], [7, 699, 3, i64::MAX]);
        assert_eq!(HashIds::default().max(), None);
    }

    proptest! {
        #[test]
        fn runs_are_the_ids_that_they_were_made_of(a in runs(), b in runs(), from in 0..50_usize) {
            let [packed, other] = [&a, &b].map(|ids| ids.iter().copied().collect::<HashIds>());
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), a.clone());
            prop_assert_eq!(packed.len(), a.len());
            prop_assert!((0..a.len()).all(|i| packed.at(i) == a[i]));
            let rest = &a[from.min(a.len())..];
            prop_assert_eq!(packed.iter_from(from).collect::<Vec<_>>(), rest);
            prop_assert_eq!(HashIds::of_runs(a.iter().map(|&id| id..id + 1)), packed.clone());
            let first: HashIds = a.iter().copied().take(from).collect();
            prop_assert_eq!(HashIds::of_runs(packed.runs_to(from)), first);
            let equal = a.iter().zip(&b).skip(from).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(packed.num_equal(&other, from), equal);
            let shifted: Vec<_> = a.iter().map(|id| id + 100).collect();
            prop_assert_eq!(packed.shifted(100).iter().collect::<Vec<_>>(), shifted);
        }
    }
}
