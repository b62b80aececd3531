//! Ranks of lists, and which of the lists may have a block: the lowest ranked of them is found in
//! constant time.

/// Up to [`Ranks::MAX`] lists, ranked.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    rank_of: Vec<u16>,
    list_at: Vec<u16>,
    /// A bit for each rank whose list may have a block.
    filled: Box<[u64; 64]>,
    /// A bit for each word of `filled` that is not zero.
    words: u64,
}

/// The rank of a list that cannot have blocks.
const NONE: u16 = u16::MAX;

impl Ranks {
    pub const MAX: usize = 64 * 64;

    pub fn new(num_lists: usize) -> Self {
        debug_assert!(num_lists <= Self::MAX);
        Self {
            rank_of: vec![0; num_lists],
            list_at: (0..num_lists as u16).collect(),
            filled: Box::new([0; 64]),
            words: 0,
        }
    }

    /// The lists that can have blocks from now on, the first to be evicted first. No block is in
    /// any, as far as the ranks know.
    fn order(&mut self, lists: &[u16]) {
        self.filled.fill(0);
        self.words = 0;
        self.rank_of.fill(NONE);
        self.list_at.clear();
        self.list_at.extend_from_slice(lists);
        for (rank, &list) in lists.iter().enumerate() {
            self.rank_of[usize::from(list)] = rank as u16;
        }
    }

    /// Ranks lists anew by worth, the least first, of equals the older first: each with its worth,
    /// its age, and whether it has blocks now.
    pub fn rank(&mut self, lists: impl IntoIterator<Item = (usize, f32, usize, bool)>) {
        let mut lists: Vec<_> = lists.into_iter().collect();
        lists.sort_unstable_by(|a, b| a.1.total_cmp(&b.1).then(b.2.cmp(&a.2)).then(a.0.cmp(&b.0)));
        let order: Vec<u16> = lists.iter().map(|&(list, ..)| list as u16).collect();
        self.order(&order);
        for (list, ..) in lists.into_iter().filter(|&(.., is_filled)| is_filled) {
            self.fill(list);
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
        ranks.order(lists);
        ranks
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
        ranks.order(&[200, 9]);
        assert_eq!(ranks.first(), None);
        assert_eq!([200, 9, 7].map(|list| ranks.has(list)), [true, true, false]);
        ranks.fill(9);
        ranks.fill(200);
        assert_eq!(ranks.first(), Some(200));
    }
}
