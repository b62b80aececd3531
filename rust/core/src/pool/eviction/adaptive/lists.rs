//! The lists in which free cached blocks wait, by class, grade and the epoch in which they became
//! free.

use super::ages::{AGES, Values};
use super::block_meta::{CLASSES, Epoch};
use super::ranks::{Ranked, Ranks};
use crate::block::BlockId;
use crate::pool::blocks::Blocks;
use crate::pool::eviction::value::Grade;

/// The lists and their ranks.
#[derive(Debug)]
pub(crate) struct Lists {
    first_sentinel: u32,
    epoch: usize,
    ranks: Ranks,
}

/// Lists of an epoch, one for each class and grade.
const KINDS: usize = CLASSES * Grade::COUNT;
/// What a block of each grade is worth, of the best one's; those of the worst are worth nothing.
const SCALES: [f32; Grade::COUNT] =
    [1.0, 1.0 / 2.0, 1.0 / 4.0, 1.0 / 8.0, 1.0 / 16.0, 1.0 / 32.0, 1.0 / 64.0, 0.0];

impl Lists {
    pub const NUM_LISTS: usize = KINDS * AGES;

    /// Empty lists, whose sentinels are the records from `first_sentinel` on.
    pub fn new(states: &mut Blocks, first_sentinel: u32, values: &Values) -> Self {
        (0..Self::NUM_LISTS as u32).for_each(|list| states.make_ring(first_sentinel + list));
        Self { first_sentinel, epoch: 0, ranks: Ranks::new(&SCALES, values) }
    }

    /// The sentinel of a list.
    fn sentinel(&self, Ranked { kind, age }: Ranked) -> u32 {
        self.first_sentinel + (kind * AGES + (self.epoch + AGES - age) % AGES) as u32
    }

    fn list(class: usize, grade: Grade, age: usize) -> Ranked {
        Ranked { kind: class * Grade::COUNT + grade.halvings(), age }
    }

    /// Starts to add blocks that become free now: the sentinel of their list.
    pub fn open(&mut self, class: usize, grade: Grade) -> u32 {
        let list = Self::list(class, grade, 0);
        self.ranks.fill(list);
        self.sentinel(list)
    }

    /// Adds a block beside those that became free `age` epochs ago.
    pub fn push_aged(
        &mut self,
        states: &mut Blocks,
        class: usize,
        grade: Grade,
        age: usize,
        block: BlockId,
    ) {
        let list = Self::list(class, grade, age.min(AGES - 1));
        states.push_to_ring(self.sentinel(list), block);
        self.ranks.fill(list);
    }

    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        Epoch::new(self.epoch)
    }

    /// The sentinel of the list whose blocks are to be evicted first.
    pub fn first(&mut self, states: &Blocks) -> Option<u32> {
        loop {
            let sentinel = self.sentinel(self.ranks.first()?);
            if states.first_of_ring(sentinel).is_some() {
                return Some(sentinel);
            }
            self.ranks.empty_first();
        }
    }

    /// An epoch ends: every list is a step older, the oldest join the next, and all are ranked.
    pub fn end_epoch(&mut self, states: &mut Blocks, values: &Values) {
        for kind in self.ranks.oldest() {
            let [oldest, next] = [1, 2].map(|n| self.sentinel(Ranked { kind, age: AGES - n }));
            states.prepend_ring(oldest, next);
        }
        self.epoch += 1;
        self.ranks.values_mut().copy_from_slice(values);
        self.ranks.end_epoch();
    }

    /// Returns every block, the one that is evicted first at the front.
    pub fn in_order(&self, states: &Blocks) -> Vec<BlockId> {
        let (mut ranks, mut blocks) = (self.ranks.clone(), Vec::new());
        while let Some(list) = ranks.first() {
            blocks.extend(states.ring(self.sentinel(list)));
            ranks.empty_first();
        }
        blocks
    }

    /// Every block, list by list.
    pub fn blocks<'a>(&'a self, states: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        (0..Self::NUM_LISTS as u32).flat_map(|list| states.ring(self.first_sentinel + list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::blocks::fingerprint::KeyLayout;
    use crate::pool::eviction::adaptive::hazard::Profile;
    use crate::pool::eviction::adaptive::scoring::Ordering;

    struct World {
        states: Blocks,
        lists: Lists,
        values: Values,
    }

    impl World {
        fn new(ordering: Ordering) -> Self {
            let mut states = Blocks::with_sentinels(400, KeyLayout::new(1), Lists::NUM_LISTS);
            let values = ordering.values(&Profile::new());
            let lists = Lists::new(&mut states, 401, &values);
            Self { states, lists, values }
        }

        fn push(&mut self, class: usize, halvings: usize, block: BlockId) {
            self.lists.push_aged(&mut self.states, class, Grade::new(halvings), 0, block);
        }

        fn end_epoch(&mut self) {
            self.lists.end_epoch(&mut self.states, &self.values);
        }

        fn popped(&mut self) -> Vec<BlockId> {
            let pop = || {
                let list = self.lists.first(&self.states)?;
                let block = self.states.first_of_ring(list)?;
                self.states.unlink(block);
                Some(block)
            };
            std::iter::from_fn(pop).collect()
        }
    }

    #[test]
    fn of_one_list_the_first_goes_first() {
        let mut world = World::new(Ordering::Recency);
        [5, 3, 4].into_iter().for_each(|block| world.push(0, 0, block));
        assert_eq!(world.lists.blocks(&world.states).collect::<Vec<_>>(), [5, 3, 4]);
        assert_eq!(world.popped(), [5, 3, 4]);
    }

    #[test]
    fn of_one_epoch_the_less_used_and_the_worse_go_first_from_the_start_on() {
        let mut world = World::new(Ordering::Frequency);
        for epoch in 0..2 {
            // Worth 12, 1, 1 / 2, 12 / 16, and nothing.
            for (class, halvings, block) in [(3, 0, 1), (0, 0, 2), (0, 1, 3), (3, 4, 4), (3, 7, 5)]
            {
                world.push(class, halvings, block);
            }
            assert_eq!(world.popped(), [5, 3, 4, 2, 1], "in epoch {epoch}");
            world.end_epoch();
        }
    }

    #[test]
    fn worth_falls_with_age() {
        let mut world = World::new(Ordering::Frequency);
        world.push(3, 0, 1);
        (0..9).for_each(|_| world.end_epoch());
        world.push(0, 0, 2); // 1 against 12 / 10
        (0..2).for_each(|_| world.end_epoch());
        world.push(0, 0, 3); // 1 against 1 / 3 and 12 / 12
        assert_eq!(world.popped(), [2, 1, 3], "of equals the older goes first");
    }

    #[test]
    fn the_oldest_lists_are_one() {
        let mut world = World::new(Ordering::Recency);
        for block in 1..=3 {
            world.push(0, 0, block);
            world.end_epoch();
        }
        (0..AGES - 4).for_each(|_| world.end_epoch());
        let of_age = |world: &World, age| {
            let list = world.lists.sentinel(Lists::list(0, Grade::BEST, age));
            world.states.ring(list).collect::<Vec<_>>()
        };
        assert_eq!([63, 62, 61].map(|age| of_age(&world, age)), [vec![1], vec![2], vec![3]]);
        world.end_epoch();
        world.end_epoch();
        assert_eq!([63, 62, 0].map(|age| of_age(&world, age)), [vec![1, 2, 3], vec![], vec![]]);
        world.push(0, 0, 4);
        assert_eq!(world.popped(), [1, 2, 3, 4]);
    }

    #[test]
    fn an_aged_block_goes_where_those_of_its_age_are() {
        let mut world = World::new(Ordering::Recency);
        world.push(0, 0, 1);
        (0..3).for_each(|_| world.end_epoch());
        world.push(0, 0, 2);
        world.lists.push_aged(&mut world.states, 0, Grade::BEST, 3, 3);
        world.lists.push_aged(&mut world.states, 0, Grade::BEST, 2, 4);
        assert_eq!(world.popped(), [1, 3, 4, 2]);
    }
}
