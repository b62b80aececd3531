//! Finds the list that is evicted first: of those that may have blocks, the one with the lowest score,
//! and of equals the older. Only what changes is looked at again.

use super::scoring::Scores;
use super::tuning::Tuning;

const AGES: usize = Tuning::AGES;

/// The lists of all classes, of some value levels, at all ages.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    /// The share of a full block's score at each value level.
    value_shares: &'static [f32],
    /// The score of a full block by class and age.
    scores: Box<Scores>,
    rows: Vec<Row>,
    /// A bit for each row of which a list may have blocks.
    filled: u32,
    /// The row of the list that is evicted first.
    first: usize,
}

/// The lists of a class and a value level, one for each age.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// A bit for each age whose list may have blocks.
    filled: u64,
    /// The age of the list with the lowest score.
    age: u32,
    /// That score; infinite if no list has blocks.
    score: f32,
}

impl Row {
    const EMPTY: Self = Self { filled: 0, age: 0, score: f32::INFINITY };

    fn goes_before(&self, other: &Self) -> bool {
        self.score < other.score || self.score == other.score && self.age > other.age
    }
}

/// A list, by its row, `class * number of value levels + value level`, and its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListId {
    pub row: usize,
    pub age: usize,
}

impl Ranks {
    /// Lists without blocks.
    pub(super) fn new(value_shares: &'static [f32], scores: &Scores) -> Self {
        let rows = vec![Row::EMPTY; Tuning::CLASSES * value_shares.len()];
        debug_assert!(rows.len() <= u32::BITS as usize);
        Self { value_shares, scores: Box::new(*scores), rows, filled: 0, first: 0 }
    }

    /// The score of a full block by class and age.
    pub(super) fn scores(&self) -> &Scores {
        &self.scores
    }

    /// The scores, to change those that are in force from the end of the epoch on.
    pub(super) fn scores_mut(&mut self) -> &mut Scores {
        &mut self.scores
    }

    /// A list got a block.
    #[inline]
    pub(super) fn fill(&mut self, list: ListId) {
        if self.rows[list.row].filled >> list.age & 1 == 0 {
            self.start_to_fill(list);
        }
    }

    #[inline(never)]
    fn start_to_fill(&mut self, ListId { row: index, age }: ListId) {
        let filled = self.rows[index].filled | 1 << age;
        let row = Row { filled, age: age as u32, score: self.score(index, age) };
        if row.goes_before(&self.rows[index]) {
            self.rows[index] = row;
        }
        self.rows[index].filled = filled;
        self.filled |= 1 << index;
        if row.goes_before(&self.rows[self.first]) {
            self.first = index;
        }
    }

    fn score(&self, row: usize, age: usize) -> f32 {
        let num_levels = self.value_shares.len();
        self.scores[row / num_levels][age] * self.value_shares[row % num_levels]
    }

    /// The list that is evicted first of those that may have a block.
    #[inline]
    pub(super) fn first(&self) -> Option<ListId> {
        let row = &self.rows[self.first];
        (row.filled != 0).then_some(ListId { row: self.first, age: row.age as usize })
    }

    /// The first list turned out to have no block.
    pub(super) fn empty_first(&mut self) {
        let row = &mut self.rows[self.first];
        row.filled &= !(1 << row.age);
        self.find_lowest(self.first);
        self.find_first();
    }

    /// An epoch ends. Every list becomes an epoch older, and the oldest ones join the next.
    pub(super) fn end_epoch(&mut self) {
        for row in bits(self.filled) {
            let filled = self.rows[row].filled;
            self.rows[row].filled = filled << 1 | filled & 1 << (AGES - 1);
            self.find_lowest(row);
        }
        self.find_first();
    }

    /// No list has a block.
    pub(super) fn clear(&mut self) {
        self.rows.fill(Row::EMPTY);
        self.filled = 0;
    }

    /// The rows whose oldest list may have blocks.
    pub(super) fn oldest(&self) -> impl Iterator<Item = usize> + '_ {
        bits(self.filled).filter(|&row| self.rows[row].filled >> (AGES - 1) != 0)
    }

    fn find_lowest(&mut self, index: usize) {
        let (class, level) = (index / self.value_shares.len(), index % self.value_shares.len());
        let (scores, share) = (&self.scores[class], self.value_shares[level]);
        let row = &mut self.rows[index];
        let mut lowest = Row { filled: row.filled, ..Row::EMPTY };
        let mut rest = row.filled;
        while rest != 0 {
            let age = rest.ilog2();
            rest ^= 1 << age;
            let score = scores[age as usize] * share;
            if score < lowest.score {
                (lowest.age, lowest.score) = (age, score);
            }
        }
        *row = lowest;
    }

    fn find_first(&mut self) {
        let mut first = Row::EMPTY;
        for index in bits(self.filled) {
            let row = self.rows[index];
            if row.filled == 0 {
                self.filled ^= 1 << index;
            } else if row.goes_before(&first) {
                (first, self.first) = (row, index);
            }
        }
    }
}

/// The positions of the bits that are set.
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: [f32; 2] = [1.0, 0.0];

    /// Scores of 3, 2 and 1 at the ages 0, 1 and 2, and of 0.5 beyond; 10 times as much in the last class.
    fn ranks() -> Ranks {
        let of = |most: f32| std::array::from_fn(|age| (most - age as f32).max(most / 6.0));
        let mut scores = [of(3.0); Tuning::CLASSES];
        scores[Tuning::CLASSES - 1] = of(3.0).map(|score| score * 10.0);
        Ranks::new(&SHARES, &scores)
    }

    fn row(class: usize, level: usize) -> usize {
        class * SHARES.len() + level
    }

    fn popped(ranks: &mut Ranks) -> Vec<(usize, usize)> {
        let pop = || {
            let first = ranks.first();
            ranks.empty_first();
            first.map(|ListId { row, age }| (row, age))
        };
        std::iter::from_fn(pop).collect()
    }

    #[test]
    fn the_lowest_score_goes_first_and_of_equals_the_older() {
        let mut ranks = ranks();
        assert_eq!(ranks.first(), None);
        ranks.empty_first();
        let [best, worst, last] = [row(0, 0), row(1, 1), row(Tuning::CLASSES - 1, 0)];
        let lists =
            [(last, 2), (best, 0), (best, 63), (worst, 0), (best, 1), (worst, 7), (best, 5)];
        for (row, age) in lists {
            ranks.fill(ListId { row, age });
            ranks.fill(ListId { row, age });
        }
        let expected =
            [(worst, 7), (worst, 0), (best, 63), (best, 5), (best, 1), (best, 0), (last, 2)];
        assert_eq!(popped(&mut ranks.clone()), expected);
        ranks.clear();
        assert_eq!(popped(&mut ranks), []);
    }

    #[test]
    fn an_emptied_list_can_be_filled_again() {
        let mut ranks = ranks();
        ranks.fill(ListId { row: 0, age: 1 });
        ranks.empty_first();
        ranks.fill(ListId { row: 0, age: 0 });
        ranks.fill(ListId { row: 0, age: 1 });
        assert_eq!(popped(&mut ranks), [(0, 1), (0, 0)]);
    }

    #[test]
    fn an_epoch_makes_all_older_and_joins_the_oldest() {
        let mut ranks = ranks();
        for age in [0, 1, 62, 63] {
            ranks.fill(ListId { row: 0, age });
        }
        assert_eq!(ranks.oldest().collect::<Vec<_>>(), [0]);
        ranks.end_epoch();
        assert_eq!(popped(&mut ranks.clone()), [(0, 63), (0, 2), (0, 1)]);
        let of_class = &mut ranks.scores_mut()[0];
        (of_class[1], of_class[2]) = (0.25, 0.125);
        ranks.end_epoch();
        assert_eq!(popped(&mut ranks), [(0, 2), (0, 63), (0, 3)]);
        assert_eq!(ranks.oldest().count(), 0);
    }
}
