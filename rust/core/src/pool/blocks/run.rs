//! Runs: lists of ids that go up by one, or down by one, from each to the next.
//!
//! Blocks that are allocated one after another are mostly a run. The free queue of a fresh pool is
//! in order of ids, and requests release their blocks in the opposite order. If all blocks of a run
//! are changed in the same way, a loop over consecutive items is enough, without a look-up for each
//! block.

use std::ops::Range;

/// A part of a list of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A run.
    Run(&'a [u32]),
    /// Any ids.
    Scattered(&'a [u32]),
}

/// A run of at least two ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdRun {
    pub first: u32,
    pub last: u32,
}

impl IdRun {
    /// The length from which a run is handled as one.
    pub(crate) const MIN_LEN: usize = 32;

    /// Returns the run of the ids of a [`Part::Run`].
    #[inline]
    pub(crate) fn of(ids: &[u32]) -> Self {
        Self { first: ids[0], last: ids[ids.len() - 1] }
    }

    /// Returns the run that these ids form; `None` if they form none of at least [`Self::MIN_LEN`]
    /// ids.
    #[inline]
    pub(crate) fn detect(ids: &[u32]) -> Option<Self> {
        (ids.len() >= Self::MIN_LEN && step_of_run(ids).is_some()).then(|| Self::of(ids))
    }

    /// Returns the same ids in reverse order.
    #[inline]
    pub(crate) fn reversed(self) -> Self {
        Self { first: self.last, last: self.first }
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.first.abs_diff(self.last) as usize + 1
    }

    /// Returns the smallest and the largest id.
    #[inline]
    pub(crate) fn bounds(self) -> (u32, u32) {
        (self.first.min(self.last), self.first.max(self.last))
    }

    #[inline]
    pub(crate) fn is_ascending(self) -> bool {
        self.first < self.last
    }

    /// Returns the items with these ids, in the order of `list`; `None` if one of them is the null
    /// block's item.
    #[inline]
    pub(crate) fn slice_mut<T>(self, list: &mut [T]) -> Option<&mut [T]> {
        Some(&mut list[self.range()?])
    }

    /// Returns the same items as [`Self::slice_mut`], for reading.
    #[inline]
    pub(crate) fn slice<T>(self, list: &[T]) -> Option<&[T]> {
        Some(&list[self.range()?])
    }

    #[inline]
    fn range(self) -> Option<Range<usize>> {
        let (low, high) = self.bounds();
        (low > 0).then_some(low as usize..high as usize + 1)
    }
}

/// The parts of a list in their order: runs of at least `least` ids, and the ids between the runs.
/// Some runs of fewer than 63 ids are not detected.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    rest: &'a [u32],
    least: usize,
    /// The length of the run at the start of `rest`; 0 if it is unknown.
    run: usize,
}

impl<'a> Parts<'a> {
    /// Creates the parts of `ids`.
    pub fn of(ids: &'a [u32], least: usize) -> Self {
        Self { rest: ids, least: least.max(2), run: 0 }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    #[inline]
    fn next(&mut self) -> Option<Part<'a>> {
        let ids = self.rest;
        let run = match std::mem::take(&mut self.run) {
            0 => first_run(ids, self.least),
            known => 0..known,
        };
        let (part, rest) = ids.split_at(if run.start == 0 { run.end } else { run.start });
        self.rest = rest;
        match (part.is_empty(), run.start) {
            (true, _) => None,
            (_, 0) => Some(Part::Run(part)),
            _ => {
                self.run = run.len();
                Some(Part::Scattered(part))
            }
        }
    }
}

/// Returns the first run of at least `least` ids that fills one of the list's windows of 32 ids.
/// Every run of 63 ids fills one. If no run does, returns an empty range after the last id.
#[inline]
fn first_run(ids: &[u32], least: usize) -> Range<usize> {
    let end = ids.len();
    if end < least.max(WINDOW) {
        return end..end;
    }
    // Most lists are one run.
    if end >= least && step_of_run(ids).is_some() {
        return 0..end;
    }
    let mut windows = ids.chunks_exact(WINDOW).enumerate();
    let run = windows.find_map(|(i, window)| {
        let first = i * WINDOW;
        let run = run_around(ids, first..first + WINDOW, step_of_run(window)?);
        (run.len() >= least).then_some(run)
    });
    run.unwrap_or(end..end)
}

/// Returns the step from each id to the next, if the list is a run. It must have at least two ids.
#[inline]
fn step_of_run(ids: &[u32]) -> Option<u32> {
    let step = ids[1].wrapping_sub(ids[0]);
    let last = ids[ids.len() - 1];
    let is_likely = last.wrapping_sub(ids[0]) == step.wrapping_mul(ids.len() as u32 - 1);
    (is_likely && step.wrapping_add(1) & !2 == 0 && are_steps(ids, step)).then_some(step)
}

const WINDOW: usize = 32;

/// Returns the whole run that contains `part`.
fn run_around(ids: &[u32], part: Range<usize>, step: u32) -> Range<usize> {
    let first = part.start - num_steps_before(&ids[..=part.start], step);
    first..part.end + num_steps(&ids[part.end - 1..], step)
}

/// The number of ids that are compared at once in runs that can be short.
const FEW: usize = 8;

/// Returns how many ids, from the first on, are followed by the id one `step` away.
fn num_steps(ids: &[u32], step: u32) -> usize {
    let num_many = num_whole::<WINDOW>(ids, step);
    let num_some = num_many + num_whole::<FEW>(&ids[num_many..], step);
    let rest = &ids[num_some..];
    let steps = rest.iter().zip(&rest[1..]);
    num_some + steps.take_while(|(a, b)| b.wrapping_sub(**a) == step).count()
}

/// Returns the result of [`num_steps`], rounded down to a multiple of `N`.
fn num_whole<const N: usize>(ids: &[u32], step: u32) -> usize {
    let batches = ids.windows(N + 1).step_by(N);
    batches.take_while(|batch| are_steps(batch, step)).count() * N
}

/// Returns how many ids, from the last backwards, are preceded by the id one `step` before.
fn num_steps_before(ids: &[u32], step: u32) -> usize {
    let batches = ids.windows(FEW + 1).rev().step_by(FEW);
    let num_whole = batches.take_while(|batch| are_steps(batch, step)).count() * FEW;
    let rest = &ids[..ids.len() - num_whole];
    let steps = rest.iter().rev().zip(rest.iter().rev().skip(1));
    num_whole + steps.take_while(|(b, a)| b.wrapping_sub(**a) == step).count()
}

/// Returns whether every id is one `step` after the one before. It compares all at once, which is
/// several times faster than one by one.
#[inline]
fn are_steps(ids: &[u32], step: u32) -> bool {
    let steps = ids.iter().zip(&ids[1..]);
    steps.fold(0, |any, (a, b)| any | b.wrapping_sub(*a) ^ step) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(ids: &[u32], least: usize) -> Vec<Part<'_>> {
        Parts::of(ids, least).collect()
    }

    #[test]
    fn runs_are_split_from_what_is_between_them() {
        let up: Vec<u32> = (7..107).collect();
        let down: Vec<u32> = (110..180).rev().collect();
        let ids = [&[3][..], &up, &[9, 8], &down, &[1, 2]].concat();
        let [first, second] = [Part::Run(&up), Part::Run(&down)];
        let between = [&[3][..], &[9, 8], &[1, 2]].map(Part::Scattered);
        assert_eq!(parts(&ids, 8), [between[0], first, between[1], second, between[2]]);
        assert_eq!(parts(&ids, 101), [Part::Scattered(&ids)]);
        assert_eq!(parts(&up, 8), [first]);
        assert_eq!(parts(&[], 2), []);
        assert_eq!(parts(&[4], 2), [Part::Scattered(&[4])]);
        assert_eq!(parts(&[5; 40], 2), [Part::Scattered(&[5; 40])]);
    }

    proptest! {
        #[test]
        fn parts_are_the_list(
            runs in prop::collection::vec((0u32..90, 1u32..150, any::<bool>()), 0..12),
            least in 2usize..40,
        ) {
            let run = |&(first, len, up): &(u32, u32, bool)| -> Vec<u32> {
                let ids = first..first + len;
                if up { ids.collect() } else { ids.rev().collect() }
            };
            let ids: Vec<u32> = runs.iter().flat_map(run).collect();
            let mut joined = Vec::<u32>::new();
            for part in parts(&ids, least) {
                let (Part::Run(own) | Part::Scattered(own)) = part;
                joined.extend(own);
                let longest = (1..own.len()).map(|i| {
                    let step = own[i].wrapping_sub(own[i - 1]);
                    let is_run = step == 1 || step == u32::MAX;
                    if is_run { run_around(own, i - 1..i + 1, step).len() } else { 1 }
                }).max();
                let longest = longest.unwrap_or(1);
                match part {
                    Part::Run(_) => prop_assert!(longest == own.len() && longest >= least),
                    // A run can start with the last id of the part before.
                    Part::Scattered(_) => prop_assert!(longest <= least.max(63)),
                }
            }
            prop_assert_eq!(joined, ids);
        }
    }
}
