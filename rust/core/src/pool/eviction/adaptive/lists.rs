//! The ranked lists of free cached blocks, by class, halvings and the epoch in which the blocks
//! became free. In each list, the block that was unused for the longest time is first.

use super::block_meta::{BlockMeta, Epoch};
use super::hazard::ByClassAndAge;
use super::ranks::{ListId, Ranks};
use super::tuning::{self, AGES};
use crate::block::BlockId;
use crate::pool::blocks::Blocks;

#[derive(Debug)]
pub(super) struct RankedLists {
    first_sentinel: u32,
    epoch: usize,
    ranks: Ranks,
}

impl RankedLists {
    pub(super) const NUM_LISTS: usize = tuning::CLASSES * tuning::VALUE_LEVELS * AGES;

    /// Creates empty lists. Their sentinels are the records from `first_sentinel` on.
    pub(super) fn new(blocks: &mut Blocks, first_sentinel: u32, scores: &ByClassAndAge) -> Self {
        (0..Self::NUM_LISTS as u32).for_each(|list| blocks.make_ring(first_sentinel + list));
        Self { first_sentinel, epoch: 0, ranks: Ranks::new(&tuning::VALUE_SHARES, scores) }
    }

    fn sentinel(&self, ListId { series, age }: ListId) -> u32 {
        self.first_sentinel + (series * AGES + (self.epoch + AGES - age) % AGES) as u32
    }

    fn list(meta: BlockMeta, age: usize) -> ListId {
        ListId { series: meta.class() * tuning::VALUE_LEVELS + meta.value().halvings(), age }
    }

    /// Returns the sentinel of the list for blocks like this one that become free now. The caller
    /// adds blocks to the list.
    pub(super) fn open(&mut self, meta: BlockMeta) -> u32 {
        let list = Self::list(meta, 0);
        self.ranks.fill(list);
        self.sentinel(list)
    }

    /// Adds a block to the list of blocks that became free `age` epochs ago.
    pub(super) fn push(
        &mut self,
        blocks: &mut Blocks,
        block: BlockId,
        meta: BlockMeta,
        age: usize,
    ) {
        let list = Self::list(meta, age.min(AGES - 1));
        blocks.push_to_ring(self.sentinel(list), block);
        self.ranks.fill(list);
    }

    pub(super) fn epoch(&self) -> Epoch {
        Epoch::new(self.epoch)
    }

    /// Returns the sentinel of the list that is evicted first.
    pub(super) fn first(&mut self, blocks: &Blocks) -> Option<u32> {
        loop {
            let sentinel = self.sentinel(self.ranks.first()?);
            if blocks.first_of_ring(sentinel).is_some() {
                return Some(sentinel);
            }
            self.ranks.empty_first();
        }
    }

    /// Ends an epoch. Every list becomes an epoch older, the oldest lists join the next oldest, and
    /// the scores change.
    pub(super) fn end_epoch(&mut self, blocks: &mut Blocks, scores: &ByClassAndAge) {
        for series in self.ranks.oldest() {
            let [oldest, next] = [1, 2].map(|n| self.sentinel(ListId { series, age: AGES - n }));
            blocks.prepend_ring(oldest, next);
        }
        self.epoch += 1;
        *self.ranks.scores = *scores;
        self.ranks.end_epoch();
    }

    /// Returns all blocks in the order of eviction.
    pub(super) fn in_order<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        let mut ranks = self.ranks.clone();
        let lists = std::iter::from_fn(move || {
            let list = ranks.first()?;
            ranks.empty_first();
            Some(list)
        });
        lists.flat_map(|list| blocks.ring(self.sentinel(list)))
    }

    /// Returns all blocks, list by list.
    pub(super) fn iter<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        (0..Self::NUM_LISTS as u32).flat_map(|list| blocks.ring(self.first_sentinel + list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::blocks::KeyLayout;
    use crate::pool::eviction::adaptive::hazard::HazardEstimate;
    use crate::pool::eviction::adaptive::scoring::ScoringFunction;
    use crate::pool::eviction::adaptive::value::ValueLevel;

    fn meta(class: u32, halvings: usize) -> BlockMeta {
        BlockMeta(1 << class).with_value(ValueLevel::new(halvings))
    }

    struct World {
        blocks: Blocks,
        lists: RankedLists,
        scores: ByClassAndAge,
    }

    impl World {
        fn new(function: ScoringFunction) -> Self {
            let mut blocks = Blocks::new(400, KeyLayout::new(1), RankedLists::NUM_LISTS);
            let scores = function.scores(&HazardEstimate::new());
            let lists = RankedLists::new(&mut blocks, 401, &scores);
            Self { blocks, lists, scores }
        }

        fn push(&mut self, class: u32, halvings: usize, block: BlockId) {
            self.lists.push(&mut self.blocks, block, meta(class, halvings), 0);
        }

        fn end_epoch(&mut self) {
            self.lists.end_epoch(&mut self.blocks, &self.scores);
        }

        fn popped(&mut self) -> Vec<BlockId> {
            let pop = || {
                let list = self.lists.first(&self.blocks)?;
                let block = self.blocks.first_of_ring(list)?;
                self.blocks.unlink(block);
                Some(block)
            };
            std::iter::from_fn(pop).collect()
        }
    }

    #[test]
    fn of_one_list_the_first_goes_first() {
        let mut world = World::new(ScoringFunction::Recency);
        [5, 3, 4].into_iter().for_each(|block| world.push(0, 0, block));
        assert_eq!(world.lists.iter(&world.blocks).collect::<Vec<_>>(), [5, 3, 4]);
        assert_eq!(world.popped(), [5, 3, 4]);
    }

    #[test]
    fn of_one_epoch_the_less_used_and_the_less_valuable_go_first_from_the_start_on() {
        let mut world = World::new(ScoringFunction::Frequency);
        for epoch in 0..2 {
            // The scores are 12, 1, 1 / 2, 12 / 16, and 12 / 64.
            for (class, halvings, block) in [(3, 0, 1), (0, 0, 2), (0, 1, 3), (3, 4, 4), (3, 6, 5)]
            {
                world.push(class, halvings, block);
            }
            assert_eq!(world.popped(), [5, 3, 4, 2, 1], "in epoch {epoch}");
            world.end_epoch();
        }
    }

    #[test]
    fn scores_fall_with_age() {
        let mut world = World::new(ScoringFunction::Frequency);
        world.push(3, 0, 1);
        (0..9).for_each(|_| world.end_epoch());
        world.push(0, 0, 2); // 1 against 12 / 10
        (0..2).for_each(|_| world.end_epoch());
        world.push(0, 0, 3); // 1 against 1 / 3 and 12 / 12
        assert_eq!(world.popped(), [2, 1, 3], "of equals the older goes first");
    }

    #[test]
    fn the_oldest_lists_are_one() {
        let mut world = World::new(ScoringFunction::Recency);
        for block in 1..=3 {
            world.push(0, 0, block);
            world.end_epoch();
        }
        (0..AGES - 4).for_each(|_| world.end_epoch());
        let of_age = |world: &World, age| {
            let list = world.lists.sentinel(RankedLists::list(meta(0, 0), age));
            world.blocks.ring(list).collect::<Vec<_>>()
        };
        assert_eq!([63, 62, 61].map(|age| of_age(&world, age)), [vec![1], vec![2], vec![3]]);
        world.end_epoch();
        world.end_epoch();
        assert_eq!([63, 62, 0].map(|age| of_age(&world, age)), [vec![1, 2, 3], vec![], vec![]]);
        world.push(0, 0, 4);
        assert_eq!(world.popped(), [1, 2, 3, 4]);
    }

    #[test]
    fn an_aged_block_joins_those_of_its_age() {
        let mut world = World::new(ScoringFunction::Recency);
        world.push(0, 0, 1);
        (0..3).for_each(|_| world.end_epoch());
        world.push(0, 0, 2);
        world.lists.push(&mut world.blocks, 3, meta(0, 0), 3);
        world.lists.push(&mut world.blocks, 4, meta(0, 0), 2);
        assert_eq!(world.popped(), [1, 3, 4, 2]);
    }
}
