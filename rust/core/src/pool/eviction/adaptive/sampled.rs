//! The set of sampled blocks, with a bit for each block. It finds the sampled blocks of a run
//! without a look at the others. A search of the metadata would cost a third of the instructions of
//! an admission.

use crate::block::BlockId;
use crate::pool::blocks::{IdRun, prefault};

#[derive(Debug)]
pub(super) struct Sampled(Vec<u64>);

/// Returns the position of the word that has a block's bit.
fn word_of(block: BlockId) -> usize {
    (block / u64::BITS) as usize
}

impl Sampled {
    /// Creates an empty set for `num_blocks` blocks.
    pub(super) fn new(num_blocks: usize) -> Self {
        Self(prefault::zeros(num_blocks / u64::BITS as usize + 1))
    }

    /// Adds a block to the set, or removes it.
    #[inline]
    pub(super) fn toggle(&mut self, block: BlockId) {
        self.0[word_of(block)] ^= 1 << (block % u64::BITS);
    }

    #[inline]
    pub(super) fn remove_run(&mut self, run: IdRun) {
        let (low, high) = run.bounds();
        let (first, last) = (word_of(low), word_of(high));
        for (at, word) in (first..).zip(&mut self.0[first..=last]) {
            *word &= !Self::bits_between(at, low, high);
        }
    }

    /// Returns the bits of a word that represent the blocks from `low` to `high`. The word holds
    /// one of these two blocks, or lies between their words.
    #[inline]
    fn bits_between(at: usize, low: BlockId, high: BlockId) -> u64 {
        let from_low = if at == word_of(low) { u64::MAX << (low % u64::BITS) } else { u64::MAX };
        let to_high = if at == word_of(high) { u64::MAX >> (!high % u64::BITS) } else { u64::MAX };
        from_low & to_high
    }

    pub(super) fn has(&self, block: BlockId) -> bool {
        self.0[word_of(block)] >> (block % u64::BITS) & 1 != 0
    }

    /// Returns the number of sampled blocks in a run.
    #[inline]
    pub(super) fn count(&self, run: IdRun) -> usize {
        self.words(run).map(|(_, bits)| bits.count_ones() as usize).sum()
    }

    /// Calls `visit` with each sampled block of a run, in the order of the run.
    #[inline]
    pub(super) fn for_each(&self, run: IdRun, mut visit: impl FnMut(BlockId)) {
        if run.is_ascending() {
            for (first, bits) in self.words(run) {
                ones(bits).for_each(|bit| visit(first + bit as u32));
            }
            return;
        }
        for (first, mut bits) in self.words(run).rev() {
            while bits != 0 {
                let bit = bits.ilog2();
                bits ^= 1 << bit;
                visit(first + bit);
            }
        }
    }

    /// Returns the first block of each word of a run, and the bits of the run's blocks.
    #[inline]
    fn words(&self, run: IdRun) -> impl DoubleEndedIterator<Item = (BlockId, u64)> {
        let (low, high) = run.bounds();
        let first = word_of(low);
        self.0[first..=word_of(high)].iter().enumerate().map(move |(i, &bits)| {
            let at = first + i;
            (at as u32 * u64::BITS, bits & Self::bits_between(at, low, high))
        })
    }
}

/// Returns the positions of the bits that are set.
#[inline]
pub(super) fn ones(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_of_a_run_are_found_both_ways(
            blocks in prop::collection::vec(0_u32..300, 0..200),
            first in 1_u32..299,
            last in 1_u32..299,
        ) {
            prop_assume!(first != last);
            let mut sampled = Sampled::new(300);
            blocks.iter().for_each(|&block| sampled.toggle(block));
            let is_sampled =
                |block: &u32| blocks.iter().filter(|&other| other == block).count() % 2 == 1;
            prop_assert!((0..300).all(|block| sampled.has(block) == is_sampled(&block)));
            let mut expected: Vec<_> =
                (first.min(last)..=first.max(last)).filter(is_sampled).collect();
            let run = IdRun { first, last };
            let mut without = Sampled(sampled.0.clone());
            without.remove_run(run);
            let is_inside = |block: u32| (first.min(last)..=first.max(last)).contains(&block);
            let expected_without = |block| sampled.has(block) && !is_inside(block);
            prop_assert!((0..300).all(|block| without.has(block) == expected_without(block)));
            let mut found = Vec::new();
            sampled.for_each(run, |block| found.push(block));
            if !run.is_ascending() {
                expected.reverse();
            }
            prop_assert_eq!(found, expected);
        }
    }
}
