//! Numbers in a row: blocks that are taken one after another mostly have ids that go up or down by
//! one, and what is done to such blocks is done to all of them at once.

use std::ops::Range;

/// A part of a list of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids<'a> {
    /// Numbers that go up by one, or down by one, from each to the next.
    Run(&'a [u32]),
    /// Any numbers.
    Scattered(&'a [u32]),
}

/// Numbers that go up by one, or down by one, from each to the next: at least two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRun {
    /// The first of them.
    pub first: u32,
    /// The last.
    pub last: u32,
}

impl IdRun {
    /// Blocks in a row that are handled as one, at least.
    pub const MIN_LEN: usize = 32;

    /// Of the numbers of a [`Ids::Run`].
    #[inline]
    pub fn of(numbers: &[u32]) -> Self {
        Self { first: numbers[0], last: numbers[numbers.len() - 1] }
    }

    /// Of at least [`Self::MIN_LEN`] numbers, if they are in a row.
    #[inline]
    pub fn detect(numbers: &[u32]) -> Option<Self> {
        (numbers.len() >= Self::MIN_LEN && step_of_row(numbers).is_some())
            .then(|| Self::of(numbers))
    }

    /// The last number first.
    #[inline]
    pub fn reversed(self) -> Self {
        Self { first: self.last, last: self.first }
    }

    /// How many numbers.
    #[inline]
    pub fn len(self) -> usize {
        self.first.abs_diff(self.last) as usize + 1
    }

    /// The least and the largest of them.
    #[inline]
    pub fn bounds(self) -> (u32, u32) {
        (self.first.min(self.last), self.first.max(self.last))
    }

    /// Whether they go up.
    #[inline]
    pub fn is_ascending(self) -> bool {
        self.first < self.last
    }

    /// The items of a list that have these numbers, in the list's order. None if one of them is
    /// number 0, which stands for no item.
    #[inline]
    pub fn slice_mut<T>(self, list: &mut [T]) -> Option<&mut [T]> {
        Some(&mut list[self.range()?])
    }

    /// As [`Self::slice_mut`], to read them.
    #[inline]
    pub fn slice<T>(self, list: &[T]) -> Option<&[T]> {
        Some(&list[self.range()?])
    }

    #[inline]
    fn range(self) -> Option<Range<usize>> {
        let (low, high) = self.bounds();
        (low > 0).then_some(low as usize..high as usize + 1)
    }
}

/// The parts of a list in their order: rows of at least `least` numbers, and what is between them.
/// Some rows of fewer than 63 are not seen.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    rest: &'a [u32],
    least: usize,
    /// The length of the row that `rest` begins with, where that is known.
    row: usize,
}

impl<'a> Runs<'a> {
    /// The parts of `numbers`.
    pub fn of(numbers: &'a [u32], least: usize) -> Self {
        Self { rest: numbers, least: least.max(2), row: 0 }
    }
}

impl<'a> Iterator for Runs<'a> {
    type Item = Ids<'a>;

    #[inline]
    fn next(&mut self) -> Option<Ids<'a>> {
        let numbers = self.rest;
        let row = match std::mem::take(&mut self.row) {
            0 => first_row(numbers, self.least),
            known => 0..known,
        };
        let (piece, rest) = numbers.split_at(if row.start == 0 { row.end } else { row.start });
        self.rest = rest;
        match (piece.is_empty(), row.start) {
            (true, _) => None,
            (_, 0) => Some(Ids::Run(piece)),
            _ => {
                self.row = row.len();
                Some(Ids::Scattered(piece))
            }
        }
    }
}

/// Where the first row of at least `least` numbers is that has 32 from some multiple of
/// 32 on, as every row of 63 has. Behind the last number if there is none.
#[inline]
fn first_row(numbers: &[u32], least: usize) -> Range<usize> {
    let end = numbers.len();
    if end < least.max(WINDOW) {
        return end..end;
    }
    // Most lists are one row.
    if end >= least && step_of_row(numbers).is_some() {
        return 0..end;
    }
    let mut windows = numbers.chunks_exact(WINDOW).enumerate();
    let row = windows.find_map(|(i, window)| {
        let first = i * WINDOW;
        let row = row_around(numbers, first..first + WINDOW, step_of_row(window)?);
        (row.len() >= least).then_some(row)
    });
    row.unwrap_or(end..end)
}

/// The step from number to number in a list of at least two, if that is a row.
#[inline]
fn step_of_row(numbers: &[u32]) -> Option<u32> {
    let step = numbers[1].wrapping_sub(numbers[0]);
    let last = numbers[numbers.len() - 1];
    let is_likely = last.wrapping_sub(numbers[0]) == step.wrapping_mul(numbers.len() as u32 - 1);
    (is_likely && step.wrapping_add(1) & !2 == 0 && are_steps(numbers, step)).then_some(step)
}

const WINDOW: usize = 32;

/// The row that a part of it is in.
fn row_around(numbers: &[u32], part: Range<usize>, step: u32) -> Range<usize> {
    let first = part.start - num_steps_before(&numbers[..=part.start], step);
    first..part.end + num_steps(&numbers[part.end - 1..], step)
}

/// Numbers that are compared side by side, of rows that may be short.
const FEW: usize = 8;

/// How often one step leads from number to number.
fn num_steps(numbers: &[u32], step: u32) -> usize {
    let num_many = num_whole::<WINDOW>(numbers, step);
    let num_some = num_many + num_whole::<FEW>(&numbers[num_many..], step);
    let rest = &numbers[num_some..];
    let steps = rest.iter().zip(&rest[1..]);
    num_some + steps.take_while(|(a, b)| b.wrapping_sub(**a) == step).count()
}

/// As [`num_steps`], as far as so many steps at once are the same.
fn num_whole<const N: usize>(numbers: &[u32], step: u32) -> usize {
    let batches = numbers.windows(N + 1).step_by(N);
    batches.take_while(|batch| are_steps(batch, step)).count() * N
}

/// How often one step leads from number to number up to the last one.
fn num_steps_before(numbers: &[u32], step: u32) -> usize {
    let batches = numbers.windows(FEW + 1).rev().step_by(FEW);
    let num_whole = batches.take_while(|batch| are_steps(batch, step)).count() * FEW;
    let rest = &numbers[..numbers.len() - num_whole];
    let steps = rest.iter().rev().zip(rest.iter().rev().skip(1));
    num_whole + steps.take_while(|(b, a)| b.wrapping_sub(**a) == step).count()
}

/// Compared side by side, which is several times as fast as one by one.
#[inline]
fn are_steps(numbers: &[u32], step: u32) -> bool {
    let steps = numbers.iter().zip(&numbers[1..]);
    steps.fold(0, |any, (a, b)| any | b.wrapping_sub(*a) ^ step) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(numbers: &[u32], least: usize) -> Vec<Ids<'_>> {
        Runs::of(numbers, least).collect()
    }

    #[test]
    fn rows_are_parted_from_what_is_between_them() {
        let up: Vec<u32> = (7..107).collect();
        let down: Vec<u32> = (110..180).rev().collect();
        let numbers = [&[3][..], &up, &[9, 8], &down, &[1, 2]].concat();
        let [first, second] = [Ids::Run(&up), Ids::Run(&down)];
        let between = [&[3][..], &[9, 8], &[1, 2]].map(Ids::Scattered);
        assert_eq!(pieces(&numbers, 8), [between[0], first, between[1], second, between[2]]);
        assert_eq!(pieces(&numbers, 101), [Ids::Scattered(&numbers)]);
        assert_eq!(pieces(&up, 8), [first]);
        assert_eq!(pieces(&[], 2), []);
        assert_eq!(pieces(&[4], 2), [Ids::Scattered(&[4])]);
        assert_eq!(pieces(&[5; 40], 2), [Ids::Scattered(&[5; 40])]);
    }

    proptest! {
        #[test]
        fn pieces_are_the_list(
            rows in prop::collection::vec((0u32..90, 1u32..150, any::<bool>()), 0..12),
            least in 2usize..40,
        ) {
            let row = |&(first, len, up): &(u32, u32, bool)| -> Vec<u32> {
                let numbers = first..first + len;
                if up { numbers.collect() } else { numbers.rev().collect() }
            };
            let numbers: Vec<u32> = rows.iter().flat_map(row).collect();
            let mut joined = Vec::<u32>::new();
            for piece in pieces(&numbers, least) {
                let (Ids::Run(part) | Ids::Scattered(part)) = piece;
                joined.extend(part);
                let longest = (1..part.len()).map(|i| {
                    let step = part[i].wrapping_sub(part[i - 1]);
                    let is_row = step == 1 || step == u32::MAX;
                    if is_row { row_around(part, i - 1..i + 1, step).len() } else { 1 }
                }).max();
                let longest = longest.unwrap_or(1);
                match piece {
                    Ids::Run(_) => prop_assert!(longest == part.len() && longest >= least),
                    // A row may begin with the last number of the one before.
                    Ids::Scattered(_) => prop_assert!(longest <= least.max(63)),
                }
            }
            prop_assert_eq!(joined, numbers);
        }
    }
}
