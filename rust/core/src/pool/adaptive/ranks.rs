//! Ranks of lists, and which of the lists may have a block: the lowest ranked of them is found in
//! constant time.

use super::ages::AGES;

/// Up to [`Ranks::MAX`] lists, ranked.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    rank_of: Vec<u16>,
    list_at: Vec<u16>,
    /// A bit for each rank whose list may have a block.
    filled: Box<[u64; 64]>,
    /// A bit for each word of `filled` that is not zero.
    words: u64,
    /// Memory to sort in.
    keys: Vec<u64>,
}

/// The rank of a list that cannot have blocks.
const NONE: u16 = u16::MAX;

/// A list that is to be ranked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranked {
    pub list: usize,
    /// What its blocks are worth: 0 or more.
    pub worth: f32,
    pub age: usize,
    /// Whether it has blocks now.
    pub is_filled: bool,
}

impl Ranked {
    const LIST_BITS: u32 = Ranks::MAX.ilog2();
    const AGE_BITS: u32 = AGES.ilog2();

    /// A number by which lists are in order: numbers are sorted fastest. Floats from 0 on are in the
    /// order of their bits.
    fn key(self) -> u64 {
        let youth = AGES - 1 - self.age;
        let in_order = u64::from(self.worth.to_bits()) << Self::AGE_BITS | youth as u64;
        (in_order << Self::LIST_BITS | self.list as u64) << 1 | u64::from(self.is_filled)
    }

    fn of_key(key: u64) -> (u16, bool) {
        ((key >> 1) as u16 & (Ranks::MAX - 1) as u16, key & 1 != 0)
    }
}

impl Ranks {
    pub const MAX: usize = 64 * 64;

    pub fn new(num_lists: usize) -> Self {
        debug_assert!(num_lists <= Self::MAX);
        Self {
            rank_of: vec![0; num_lists],
            list_at: (0..num_lists as u16).collect(),
            filled: Box::new([0; 64]),
            words: 0,
            keys: Vec::new(),
        }
    }

    /// Ranks lists anew by worth, the least first, of equals the older first.
    pub fn rank(&mut self, lists: impl IntoIterator<Item = Ranked>) {
        self.keys.clear();
        self.keys.extend(lists.into_iter().map(Ranked::key));
        self.keys.sort_unstable();
        self.filled.fill(0);
        self.words = 0;
        self.rank_of.fill(NONE);
        self.list_at.clear();
        for (rank, &key) in self.keys.iter().enumerate() {
            let (list, is_filled) = Ranked::of_key(key);
            self.rank_of[usize::from(list)] = rank as u16;
            self.list_at.push(list);
            self.filled[rank / 64] |= u64::from(is_filled) << (rank % 64);
            self.words |= u64::from(is_filled) << (rank / 64);
        }
    }

    /// Whether a list can have blocks.
    pub fn has(&self, list: usize) -> bool {
        self.rank_of[list] != NONE
    }

    /// A list got a block.
    pub fn fill(&mut self, list: usize) {
        let rank = usize::from(self.rank_of[list]);
        self.filled[rank / 64] |= 1 << (rank % 64);
        self.words |= 1 << (rank / 64);
    }

    /// The lists that may have a block, in order of rank.
    pub fn filled(&self) -> impl Iterator<Item = usize> + '_ {
        let ranks = self.filled.iter().enumerate().flat_map(|(i, &word)| {
            let rest = |&word: &u64| Some(word & (word - 1)).filter(|&rest| rest != 0);
            let words = std::iter::successors(Some(word).filter(|&word| word != 0), rest);
            words.map(move |word| i * 64 + word.trailing_zeros() as usize)
        });
        ranks.map(|rank| usize::from(self.list_at[rank]))
    }

    /// The lowest ranked list that may have a block.
    pub fn first(&self) -> Option<usize> {
        if self.words == 0 {
            return None;
        }
        let word = self.words.trailing_zeros() as usize;
        let rank = word * 64 + self.filled[word].trailing_zeros() as usize;
        Some(usize::from(self.list_at[rank]))
    }

    /// The lowest ranked list has none.
    pub fn empty_first(&mut self) {
        let word = self.words.trailing_zeros() as usize;
        if word < 64 {
            self.filled[word] &= self.filled[word] - 1;
            if self.filled[word] == 0 {
                self.words &= self.words - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(lists: &[u16]) -> Ranks {
        let mut ranks = Ranks::new(256);
        order(&mut ranks, lists);
        ranks
    }

    fn order(ranks: &mut Ranks, lists: &[u16]) {
        ranks.rank(lists.iter().enumerate().map(|(i, &list)| Ranked {
            list: usize::from(list),
            worth: i as f32,
            age: 0,
            is_filled: false,
        }));
    }

    #[test]
    fn of_equals_the_older_comes_first_and_filled_ones_are_known() {
        let mut ranks = Ranks::new(256);
        let lists =
            [(1, 0.5, 3, true), (2, 0.5, 63, true), (255, 0.0, 0, true), (4, 0.1, 0, false)];
        let ranked = |(list, worth, age, is_filled)| Ranked { list, worth, age, is_filled };
        ranks.rank(lists.map(ranked));
        assert_eq!(ranks.filled().collect::<Vec<_>>(), [255, 2, 1]);
        ranks.fill(4);
        assert_eq!(ranks.filled().collect::<Vec<_>>(), [255, 4, 2, 1]);
    }

    #[test]
    fn the_lowest_ranked_list_that_is_filled_is_found() {
        let lists: Vec<u16> = (0..256).rev().collect();
        let mut ranks = ranked(&lists);
        assert_eq!(ranks.first(), None);
        // Ranks of the last word, the first and the second, in this order.
        for (list, first) in [(3, 3), (250, 250), (130, 250), (255, 255)] {
            ranks.fill(list);
            assert_eq!(ranks.first(), Some(first));
        }
        assert_eq!(ranks.filled().collect::<Vec<_>>(), [255, 250, 130, 3]);
        let order: Vec<_> = std::iter::from_fn(|| {
            let first = ranks.first();
            ranks.empty_first();
            first
        })
        .collect();
        assert_eq!(order, [255, 250, 130, 3]);
        ranks.empty_first();
        assert_eq!(ranks.filled().count(), 0);
        assert_eq!(ranks.first(), None);
    }

    #[test]
    fn a_new_order_starts_without_blocks_and_leaves_lists_out() {
        let mut ranks = ranked(&[7, 9]);
        ranks.fill(9);
        order(&mut ranks, &[200, 9]);
        assert_eq!(ranks.first(), None);
        assert_eq!([200, 9, 7].map(|list| ranks.has(list)), [true, true, false]);
        ranks.fill(9);
        ranks.fill(200);
        assert_eq!(ranks.first(), Some(200));
    }
}
