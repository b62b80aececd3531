//! The lists in which free cached blocks wait, by class, grade and the epoch in which they became
//! free.

use super::orderings::{AGES, Values};
use super::ranks::Ranks;
use super::tags::{CLASSES, Grade};
use crate::block::BlockId;
use crate::pool::states::BlockStates;

/// The lists and their ranks.
#[derive(Debug)]
pub(super) struct Lists {
    first_sentinel: u32,
    epoch: usize,
    ranks: Ranks,
}

impl Lists {
    pub const NUM_LISTS: usize = CLASSES * Grade::COUNT * AGES;

    /// Empty lists, whose sentinels are the records from `first_sentinel` on.
    pub fn new(states: &mut BlockStates, first_sentinel: u32) -> Self {
        (0..Self::NUM_LISTS as u32).for_each(|list| states.make_ring(first_sentinel + list));
        let mut ranks = Ranks::new(Self::NUM_LISTS);
        let fresh: Vec<u16> =
            (0..CLASSES * Grade::COUNT).rev().map(|kind| (kind * AGES) as u16).collect();
        ranks.order(&fresh);
        Self { first_sentinel, epoch: 0, ranks }
    }

    fn sentinel(&self, list: usize) -> u32 {
        self.first_sentinel + list as u32
    }

    /// The list of a class and grade for blocks that became free in an epoch.
    fn list(class: usize, grade: usize, epoch: usize) -> usize {
        (class * Grade::COUNT + grade) * AGES + epoch % AGES
    }

    /// Starts to add blocks that become free now: the sentinel of their list.
    pub fn open(&mut self, class: usize, grade: Grade) -> u32 {
        let list = Self::list(class, grade.halvings(), self.epoch);
        self.ranks.fill(list);
        self.sentinel(list)
    }

    /// Adds a block that becomes free now.
    pub fn push(&mut self, states: &mut BlockStates, class: usize, grade: Grade, block: BlockId) {
        let list = Self::list(class, grade.halvings(), self.epoch);
        states.push_to_ring(self.sentinel(list), block);
        self.ranks.fill(list);
    }

    /// Adds a block beside those that became free `age` epochs ago.
    pub fn push_aged(
        &mut self,
        states: &mut BlockStates,
        class: usize,
        grade: Grade,
        age: usize,
        block: BlockId,
    ) {
        let list = Self::list(class, grade.halvings(), self.epoch + AGES - age.min(AGES - 1));
        if age > 0 && !self.ranks.has(list) {
            return self.push(states, class, grade, block);
        }
        states.push_to_ring(self.sentinel(list), block);
        self.ranks.fill(list);
    }

    /// How many epochs ended.
    pub fn epoch(&self) -> usize {
        self.epoch
    }

    /// Takes the block out that is to be evicted first.
    pub fn pop(&mut self, states: &mut BlockStates) -> Option<BlockId> {
        loop {
            let list = self.ranks.first()?;
            match states.first_of_ring(self.sentinel(list)) {
                Some(block) => {
                    states.unlink(block);
                    return Some(block);
                }
                None => self.ranks.empty_first(),
            }
        }
    }

    /// An epoch ends: every list is a step older, the oldest join the next, and all are ranked.
    pub fn end_epoch(&mut self, states: &mut BlockStates, values: &Values) {
        self.epoch += 1;
        for kind in 0..CLASSES * Grade::COUNT {
            let list = |epoch| kind * AGES + epoch % AGES;
            let [oldest, next] = [list(self.epoch), list(self.epoch + 1)];
            states.prepend_ring(self.sentinel(oldest), self.sentinel(next));
        }
        self.rank(states, values);
    }

    fn rank(&mut self, states: &BlockStates, values: &Values) {
        let mut ranked = Vec::with_capacity(Self::NUM_LISTS);
        let mut filled = Vec::new();
        for kind in 0..CLASSES * Grade::COUNT {
            let (class, grade) = (kind / Grade::COUNT, kind % Grade::COUNT);
            let scale = if grade + 1 == Grade::COUNT { 0.0 } else { 0.5_f32.powi(grade as i32) };
            for (age, value) in values[class].iter().enumerate() {
                let list = Self::list(class, grade, self.epoch + AGES - age);
                let is_filled = states.first_of_ring(self.sentinel(list)).is_some();
                if is_filled || age == 0 {
                    ranked.push((value * scale, std::cmp::Reverse(age), list as u16));
                }
                if is_filled {
                    filled.push(list);
                }
            }
        }
        ranked.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        let order: Vec<u16> = ranked.into_iter().map(|(_, _, list)| list).collect();
        self.ranks.order(&order);
        filled.into_iter().for_each(|list| self.ranks.fill(list));
    }

    /// Every block, list by list.
    pub fn blocks<'a>(&'a self, states: &'a BlockStates) -> impl Iterator<Item = BlockId> + 'a {
        (0..Self::NUM_LISTS).flat_map(move |list| states.ring(self.sentinel(list)))
    }
}
