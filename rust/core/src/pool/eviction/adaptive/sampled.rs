//! The set of sampled blocks, with a bit for each block, so that those of a run are found without a
//! look at the others. Found by their metadata alone, they cost a third of the instructions of an
//! admission.

use std::iter;

use crate::block::BlockId;
use crate::pool::blocks::IdRun;
use crate::pool::blocks::prefault;

/// The sampled blocks.
#[derive(Debug)]
pub(crate) struct Sampled(Vec<u64>);

/// A word of bits, and its position.
#[derive(Clone, Copy)]
struct Word {
    at: usize,
    bits: u64,
}

impl Word {
    const LEN: usize = u64::BITS as usize;

    fn of(block: BlockId) -> usize {
        block as usize / Self::LEN
    }

    #[inline]
    fn block(self, bit: u32) -> BlockId {
        self.at as u32 * u64::BITS + bit
    }
}

impl Sampled {
    /// None of so many blocks.
    pub(super) fn new(num_blocks: usize) -> Self {
        Self(prefault::zeros(num_blocks / Word::LEN + 1))
    }

    /// Adds a block, or removes it.
    #[inline]
    pub(super) fn toggle(&mut self, block: BlockId) {
        self.0[Word::of(block)] ^= 1 << (block % u64::BITS);
    }

    /// Removes the blocks of a run.
    #[inline]
    pub(super) fn remove_run(&mut self, run: IdRun) {
        let (low, high) = run.bounds();
        let (first, last) = (Word::of(low), Word::of(high));
        for (at, word) in (first..).zip(&mut self.0[first..=last]) {
            *word &= !Self::bits_between(at, low, high);
        }
    }

    /// The bits of a word that stand for blocks from `low` to `high`. The word is that of one of them
    /// or between those.
    #[inline]
    fn bits_between(at: usize, low: BlockId, high: BlockId) -> u64 {
        let from_low = if at == Word::of(low) { u64::MAX << (low % u64::BITS) } else { u64::MAX };
        let to_high = if at == Word::of(high) { u64::MAX >> (!high % u64::BITS) } else { u64::MAX };
        from_low & to_high
    }

    pub(super) fn has(&self, block: BlockId) -> bool {
        self.0[Word::of(block)] >> (block % u64::BITS) & 1 != 0
    }

    /// Returns how many blocks of a run are sampled.
    #[inline]
    pub(super) fn count(&self, run: IdRun) -> usize {
        self.words(run).map(|word| word.bits.count_ones() as usize).sum()
    }

    /// The sampled blocks of a run by ascending id.
    #[inline]
    pub(super) fn ascending(&self, run: IdRun) -> impl Iterator<Item = BlockId> {
        let mut words = self.words(run);
        blocks_of(move || words.next(), u64::trailing_zeros)
    }

    /// The sampled blocks of a run by descending id.
    #[inline]
    pub(super) fn descending(&self, run: IdRun) -> impl Iterator<Item = BlockId> {
        let mut words = self.words(run);
        blocks_of(move || words.next_back(), u64::ilog2)
    }

    #[inline]
    fn words(&self, run: IdRun) -> impl DoubleEndedIterator<Item = Word> {
        let (low, high) = run.bounds();
        let first = Word::of(low);
        self.0[first..=Word::of(high)].iter().enumerate().map(move |(i, &bits)| {
            let at = first + i;
            Word { at, bits: bits & Self::bits_between(at, low, high) }
        })
    }
}

/// The blocks of words. `first_bit` says which bit of a word comes first.
#[inline]
fn blocks_of(
    mut next_word: impl FnMut() -> Option<Word>,
    first_bit: impl Fn(u64) -> u32,
) -> impl Iterator<Item = BlockId> {
    let mut word = Word { at: 0, bits: 0 };
    iter::from_fn(move || {
        while word.bits == 0 {
            word = next_word()?;
        }
        let bit = first_bit(word.bits);
        word.bits ^= 1 << bit;
        Some(word.block(bit))
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
            prop_assert_eq!(sampled.ascending(run).collect::<Vec<_>>(), &expected[..]);
            expected.reverse();
            prop_assert_eq!(sampled.descending(run).collect::<Vec<_>>(), expected);
        }
    }
}
