//! Finds the list that is evicted first: the list with the lowest score among the lists that may
//! have blocks. Of lists with equal scores, the older one is first. Only changed lists are examined
//! again.

use super::hazard::ByClassAndAge;
use super::sampled::ones;
use super::tuning::{AGES, CLASSES};

/// The lists of all classes and of some halvings, at all ages.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    /// The share of a full block's score for each number of halvings.
    value_shares: &'static [f32],
    /// The score of a full block, by class and age. A change takes effect at the end of the epoch.
    pub(super) scores: Box<ByClassAndAge>,
    all_series: Vec<Series>,
    /// A bit for each series that has a list that may have blocks.
    filled: u64,
    /// The series with the list that is evicted first.
    first: usize,
}

/// The lists of a class and a number of halvings, one for each age.
#[derive(Clone, Copy, Debug)]
struct Series {
    /// A bit for each age whose list may have blocks.
    filled: u64,
    /// The age of the list with the lowest score.
    age: usize,
    /// The score of that list; infinite if no list has blocks.
    score: f32,
}

impl Series {
    const EMPTY: Self = Self { filled: 0, age: 0, score: f32::INFINITY };

    fn goes_before(&self, other: &Self) -> bool {
        self.score < other.score || self.score == other.score && self.age > other.age
    }
}

/// A list, identified by its series, `class * VALUE_LEVELS + halvings`, and its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListId {
    pub series: usize,
    pub age: usize,
}

impl Ranks {
    /// Creates lists without blocks.
    pub(super) fn new(value_shares: &'static [f32], scores: &ByClassAndAge) -> Self {
        let all_series = vec![Series::EMPTY; CLASSES * value_shares.len()];
        debug_assert!(all_series.len() <= u64::BITS as usize);
        Self { value_shares, scores: Box::new(*scores), all_series, filled: 0, first: 0 }
    }

    /// Notes that a list got a block.
    #[inline]
    pub(super) fn fill(&mut self, list: ListId) {
        if self.all_series[list.series].filled >> list.age & 1 == 0 {
            self.start_to_fill(list);
        }
    }

    #[inline(never)]
    fn start_to_fill(&mut self, ListId { series: index, age }: ListId) {
        let filled = self.all_series[index].filled | 1 << age;
        let series = Series { filled, age, score: self.score(index, age) };
        if series.goes_before(&self.all_series[index]) {
            self.all_series[index] = series;
        }
        self.all_series[index].filled = filled;
        self.filled |= 1 << index;
        if series.goes_before(&self.all_series[self.first]) {
            self.first = index;
        }
    }

    fn score(&self, series: usize, age: usize) -> f32 {
        let num_levels = self.value_shares.len();
        self.scores[series / num_levels][age] * self.value_shares[series % num_levels]
    }

    /// Returns the list that is evicted first, among the lists that may have a block.
    #[inline]
    pub(super) fn first(&self) -> Option<ListId> {
        let series = &self.all_series[self.first];
        (series.filled != 0).then_some(ListId { series: self.first, age: series.age })
    }

    /// Notes that the first list has no block.
    pub(super) fn empty_first(&mut self) {
        let series = &mut self.all_series[self.first];
        series.filled &= !(1 << series.age);
        self.find_lowest(self.first);
        self.find_first();
    }

    /// Ends an epoch. Every list becomes an epoch older, and the oldest lists join the next oldest.
    pub(super) fn end_epoch(&mut self) {
        for series in ones(self.filled) {
            let filled = self.all_series[series].filled;
            self.all_series[series].filled = filled << 1 | filled & 1 << (AGES - 1);
            self.find_lowest(series);
        }
        self.find_first();
    }

    /// Notes that no list has a block.
    pub(super) fn clear(&mut self) {
        self.all_series.fill(Series::EMPTY);
        self.filled = 0;
    }

    /// Returns the series whose oldest list may have blocks.
    pub(super) fn oldest(&self) -> impl Iterator<Item = usize> + '_ {
        ones(self.filled).filter(|&series| self.all_series[series].filled >> (AGES - 1) != 0)
    }

    fn find_lowest(&mut self, index: usize) {
        let (class, level) = (index / self.value_shares.len(), index % self.value_shares.len());
        let (scores, share) = (&self.scores[class], self.value_shares[level]);
        let series = &mut self.all_series[index];
        let mut lowest = Series { filled: series.filled, ..Series::EMPTY };
        for age in ones(series.filled) {
            let score = scores[age] * share;
            if score <= lowest.score {
                (lowest.age, lowest.score) = (age, score);
            }
        }
        *series = lowest;
    }

    fn find_first(&mut self) {
        let mut first = Series::EMPTY;
        for index in ones(self.filled) {
            let series = self.all_series[index];
            if series.filled == 0 {
                self.filled ^= 1 << index;
            } else if series.goes_before(&first) {
                (first, self.first) = (series, index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: [f32; 2] = [1.0, 0.0];

    /// Creates ranks with the scores 3, 2 and 1 at the ages 0, 1 and 2, and 0.5 at later ages. The
    /// scores of the last class are 10 times as high.
    fn ranks() -> Ranks {
        let of = |most: f32| std::array::from_fn(|age| (most - age as f32).max(most / 6.0));
        let mut scores = [of(3.0); CLASSES];
        scores[CLASSES - 1] = of(3.0).map(|score| score * 10.0);
        Ranks::new(&SHARES, &scores)
    }

    fn series(class: usize, level: usize) -> usize {
        class * SHARES.len() + level
    }

    fn popped(ranks: &mut Ranks) -> Vec<(usize, usize)> {
        let pop = || {
            let first = ranks.first();
            ranks.empty_first();
            first.map(|ListId { series, age }| (series, age))
        };
        std::iter::from_fn(pop).collect()
    }

    #[test]
    fn the_lowest_score_goes_first_and_of_equals_the_older() {
        let mut ranks = ranks();
        assert_eq!(ranks.first(), None);
        ranks.empty_first();
        let [best, worst, last] = [series(0, 0), series(1, 1), series(CLASSES - 1, 0)];
        let lists =
            [(last, 2), (best, 0), (best, 63), (worst, 0), (best, 1), (worst, 7), (best, 5)];
        for (series, age) in lists {
            ranks.fill(ListId { series, age });
            ranks.fill(ListId { series, age });
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
        ranks.fill(ListId { series: 0, age: 1 });
        ranks.empty_first();
        ranks.fill(ListId { series: 0, age: 0 });
        ranks.fill(ListId { series: 0, age: 1 });
        assert_eq!(popped(&mut ranks), [(0, 1), (0, 0)]);
    }

    #[test]
    fn an_epoch_makes_all_older_and_joins_the_oldest() {
        let mut ranks = ranks();
        for age in [0, 1, 62, 63] {
            ranks.fill(ListId { series: 0, age });
        }
        assert_eq!(ranks.oldest().collect::<Vec<_>>(), [0]);
        ranks.end_epoch();
        assert_eq!(popped(&mut ranks.clone()), [(0, 63), (0, 2), (0, 1)]);
        let of_class = &mut ranks.scores[0];
        (of_class[1], of_class[2]) = (0.25, 0.125);
        ranks.end_epoch();
        assert_eq!(popped(&mut ranks), [(0, 2), (0, 63), (0, 3)]);
        assert_eq!(ranks.oldest().count(), 0);
    }
}
