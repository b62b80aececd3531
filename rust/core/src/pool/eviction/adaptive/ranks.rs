//! Which of the lists goes first: of those that may have blocks, the one whose blocks are worth
//! least. Lists are told apart by class, grade and age; only what changes is looked at again.

use super::ages::{AGES, Values};
use super::block_meta::CLASSES;

/// The lists of all classes, of so many grades, at all ages.
#[derive(Clone, Debug)]
pub(crate) struct Ranks {
    /// What a block of each grade is worth, of the best one's.
    scales: &'static [f32],
    /// Worth by class and age.
    values: Box<Values>,
    kinds: Vec<Kind>,
    /// A bit for each kind of which a list may have blocks.
    filled: u32,
    /// The kind of the list that goes first.
    first: usize,
}

/// The lists of a class and a grade.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// A bit for each age whose list may have blocks.
    filled: u64,
    /// The age of those whose blocks are worth least.
    age: u32,
    /// What they are worth; more than anything if there is no list.
    worth: f32,
}

impl Kind {
    const EMPTY: Self = Self { filled: 0, age: 0, worth: f32::INFINITY };

    fn goes_before(&self, other: &Self) -> bool {
        self.worth < other.worth || self.worth == other.worth && self.age > other.age
    }
}

/// A list: of a class and a grade, as `class * num_grades + grade`, and of an age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranked {
    pub kind: usize,
    pub age: usize,
}

impl Ranks {
    /// Lists without blocks.
    pub fn new(scales: &'static [f32], values: &Values) -> Self {
        let kinds = vec![Kind::EMPTY; CLASSES * scales.len()];
        debug_assert!(kinds.len() <= u32::BITS as usize);
        Self { scales, values: Box::new(*values), kinds, filled: 0, first: 0 }
    }

    /// Worth by class and age.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// To change what blocks are worth from the end of the epoch on.
    pub fn values_mut(&mut self) -> &mut Values {
        &mut self.values
    }

    /// A list got a block.
    #[inline]
    pub fn fill(&mut self, list: Ranked) {
        if self.kinds[list.kind].filled >> list.age & 1 == 0 {
            self.start_to_fill(list);
        }
    }

    #[inline(never)]
    fn start_to_fill(&mut self, Ranked { kind: index, age }: Ranked) {
        let filled = self.kinds[index].filled | 1 << age;
        let kind = Kind { filled, age: age as u32, worth: self.worth(index, age) };
        if kind.goes_before(&self.kinds[index]) {
            self.kinds[index] = kind;
        }
        self.kinds[index].filled = filled;
        self.filled |= 1 << index;
        if kind.goes_before(&self.kinds[self.first]) {
            self.first = index;
        }
    }

    fn worth(&self, kind: usize, age: usize) -> f32 {
        let num_grades = self.scales.len();
        self.values[kind / num_grades][age] * self.scales[kind % num_grades]
    }

    /// The list that goes first of those that may have a block: of equals the older.
    #[inline]
    pub fn first(&self) -> Option<Ranked> {
        let kind = &self.kinds[self.first];
        (kind.filled != 0).then_some(Ranked { kind: self.first, age: kind.age as usize })
    }

    /// The list that goes first has no block.
    pub fn empty_first(&mut self) {
        let kind = &mut self.kinds[self.first];
        kind.filled &= !(1 << kind.age);
        self.find_least(self.first);
        self.find_first();
    }

    /// An epoch ends: every list is a step older, and the oldest join the next.
    pub fn end_epoch(&mut self) {
        for kind in bits(self.filled) {
            let filled = self.kinds[kind].filled;
            self.kinds[kind].filled = filled << 1 | filled & 1 << (AGES - 1);
            self.find_least(kind);
        }
        self.find_first();
    }

    /// No list has a block.
    pub fn clear(&mut self) {
        self.kinds.fill(Kind::EMPTY);
        self.filled = 0;
    }

    /// The kinds whose oldest list may have blocks.
    pub fn oldest(&self) -> impl Iterator<Item = usize> + '_ {
        bits(self.filled).filter(|&kind| self.kinds[kind].filled >> (AGES - 1) != 0)
    }

    fn find_least(&mut self, index: usize) {
        let (class, grade) = (index / self.scales.len(), index % self.scales.len());
        let (values, scale) = (&self.values[class], self.scales[grade]);
        let kind = &mut self.kinds[index];
        let mut least = Kind { filled: kind.filled, ..Kind::EMPTY };
        let mut rest = kind.filled;
        while rest != 0 {
            let age = rest.ilog2();
            rest ^= 1 << age;
            let worth = values[age as usize] * scale;
            if worth < least.worth {
                (least.age, least.worth) = (age, worth);
            }
        }
        *kind = least;
    }

    fn find_first(&mut self) {
        let mut first = Kind::EMPTY;
        for kind in bits(self.filled) {
            let of = self.kinds[kind];
            if of.filled == 0 {
                self.filled ^= 1 << kind;
            } else if of.goes_before(&first) {
                (first, self.first) = (of, kind);
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

    const SCALES: [f32; 2] = [1.0, 0.0];

    /// Worth 3, 2 and 1 at the ages 0, 1 and 2, and 0.5 beyond; 10 times as much in the last class.
    fn ranks() -> Ranks {
        let of = |most: f32| std::array::from_fn(|age| (most - age as f32).max(most / 6.0));
        let mut values = [of(3.0); CLASSES];
        values[CLASSES - 1] = of(3.0).map(|worth| worth * 10.0);
        Ranks::new(&SCALES, &values)
    }

    fn kind(class: usize, grade: usize) -> usize {
        class * SCALES.len() + grade
    }

    fn popped(ranks: &mut Ranks) -> Vec<(usize, usize)> {
        let pop = || {
            let first = ranks.first();
            ranks.empty_first();
            first.map(|Ranked { kind, age }| (kind, age))
        };
        std::iter::from_fn(pop).collect()
    }

    #[test]
    fn what_is_worth_least_goes_first_and_of_equals_the_older() {
        let mut ranks = ranks();
        assert_eq!(ranks.first(), None);
        ranks.empty_first();
        let [best, worst, last] = [kind(0, 0), kind(1, 1), kind(CLASSES - 1, 0)];
        let lists =
            [(last, 2), (best, 0), (best, 63), (worst, 0), (best, 1), (worst, 7), (best, 5)];
        for (kind, age) in lists {
            ranks.fill(Ranked { kind, age });
            ranks.fill(Ranked { kind, age });
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
        ranks.fill(Ranked { kind: 0, age: 1 });
        ranks.empty_first();
        ranks.fill(Ranked { kind: 0, age: 0 });
        ranks.fill(Ranked { kind: 0, age: 1 });
        assert_eq!(popped(&mut ranks), [(0, 1), (0, 0)]);
    }

    #[test]
    fn an_epoch_makes_all_older_and_joins_the_oldest() {
        let mut ranks = ranks();
        for age in [0, 1, 62, 63] {
            ranks.fill(Ranked { kind: 0, age });
        }
        assert_eq!(ranks.oldest().collect::<Vec<_>>(), [0]);
        ranks.end_epoch();
        assert_eq!(popped(&mut ranks.clone()), [(0, 63), (0, 2), (0, 1)]);
        let of_class = &mut ranks.values_mut()[0];
        (of_class[1], of_class[2]) = (0.25, 0.125);
        ranks.end_epoch();
        assert_eq!(popped(&mut ranks), [(0, 2), (0, 63), (0, 3)]);
        assert_eq!(ranks.oldest().count(), 0);
    }
}
