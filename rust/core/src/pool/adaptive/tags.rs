//! What the order of eviction knows of each block: four bytes.

use crate::block::BlockId;

/// How much less a unit of the pool that a window tail or a state takes is worth than one that a
/// full block takes, in halvings. See [`crate::group::Worth`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grade(u8);

impl Grade {
    /// Grades that there are.
    pub const COUNT: usize = 8;
    /// Worth as much as a full block.
    pub const BEST: Self = Self(0);
    /// Worth nothing that anybody knows of: recycled before all others.
    pub const WORST: Self = Self(Self::COUNT as u8 - 1);

    /// So many halvings; at most those of [`Self::WORST`].
    pub fn new(halvings: usize) -> Self {
        Self(halvings.min(Self::COUNT - 1) as u8)
    }

    /// As a number, from 0 for the best.
    pub fn halvings(self) -> usize {
        usize::from(self.0)
    }

    /// Whether a tail is held while its request runs: from half the worth of a full block on.
    pub fn is_worth_holding(self) -> bool {
        self.0 <= 1
    }
}

/// What is known of a block when it becomes cached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    /// What it is worth.
    pub grade: Grade,
    /// Whether it is part of a window's tail or a state, which alone can serve a hit's end.
    pub is_tail: bool,
    /// Whether the sample may have it.
    pub is_watched: bool,
}

/// Where a free cached block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In use, or in another queue.
    Elsewhere,
    /// In one of the ranked lists.
    Listed,
    /// In the held tier.
    Held,
}

mod bit {
    pub const USES: u32 = 0xf;
    pub const GRADE_SHIFT: u32 = 4;
    pub const GRADE: u32 = 0x7 << GRADE_SHIFT;
    pub const TAIL: u32 = 1 << 7;
    pub const WATCHED: u32 = 1 << 8;
    pub const LISTED: u32 = 1 << 9;
    pub const HELD: u32 = 1 << 10;
    pub const SAMPLED: u32 = 1 << 11;
    pub const EPOCH_SHIFT: u32 = 16;
    pub const PLACE: u32 = LISTED | HELD;
}

/// The tags of all blocks.
#[derive(Debug)]
pub(super) struct Tags(Vec<u32>);

/// How a free block waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting(u32);

impl Waiting {
    pub fn class(self) -> usize {
        match self.0 & bit::USES {
            0 | 1 => 0,
            2 | 3 => 1,
            4..=7 => 2,
            _ => 3,
        }
    }

    pub fn grade(self) -> Grade {
        Grade(((self.0 & bit::GRADE) >> bit::GRADE_SHIFT) as u8)
    }

    /// Whether it is part of a window's tail or a state.
    pub fn is_tail(self) -> bool {
        self.0 & bit::TAIL != 0
    }

    /// Whether it is a tail that is held while its request runs.
    pub fn is_held_tail(self) -> bool {
        self.is_tail() && self.grade().is_worth_holding()
    }
}

/// Classes of blocks by the uses of their prefix: 1, 2 to 3, 4 to 7, 8 and more.
pub(super) const CLASSES: usize = 4;

impl Tags {
    pub fn new(num_blocks: usize) -> Self {
        Self(vec![0; num_blocks])
    }

    fn get(&self, block: BlockId) -> u32 {
        self.0[block as usize]
    }

    fn get_mut(&mut self, block: BlockId) -> &mut u32 {
        &mut self.0[block as usize]
    }

    /// A block that becomes cached is used for the first time.
    pub fn start(&mut self, block: BlockId, mark: Mark, is_sampled: bool) {
        let tag = self.get_mut(block);
        let place = *tag & bit::PLACE;
        *tag = place
            | 1
            | u32::from(mark.grade.0) << bit::GRADE_SHIFT
            | if mark.is_tail { bit::TAIL } else { 0 }
            | if mark.is_watched { bit::WATCHED } else { 0 }
            | if is_sampled { bit::SAMPLED } else { 0 };
    }

    /// All but the place.
    pub fn copy(&mut self, from: BlockId, to: BlockId) {
        let tag = self.get(from) & !bit::PLACE;
        let to = self.get_mut(to);
        *to = *to & bit::PLACE | tag;
    }

    /// A hit: a tail that serves one is worth as much as the full blocks that it goes with.
    #[inline]
    pub fn add_use(&mut self, block: BlockId) {
        let tag = self.get_mut(block);
        if *tag & bit::USES != bit::USES {
            *tag += 1;
        }
        *tag &= !bit::GRADE;
    }

    /// What decides where a block waits. Blocks of one waiting wait in one list.
    #[inline]
    pub fn waiting(&self, block: BlockId) -> Waiting {
        Waiting(self.get(block) & (bit::USES | bit::GRADE | bit::TAIL))
    }

    /// A block waits in a list from an epoch on; whether it is watched, and sampled.
    #[inline]
    pub fn wait(&mut self, block: BlockId, epoch: u16) -> (bool, bool) {
        let tag = self.get_mut(block);
        *tag = *tag & !bit::PLACE & 0xffff | bit::LISTED | u32::from(epoch) << bit::EPOCH_SHIFT;
        (*tag & bit::WATCHED != 0, *tag & bit::SAMPLED != 0)
    }

    /// A block has been used at least as often as another.
    pub fn inherit_uses(&mut self, block: BlockId, from: BlockId) {
        let uses = (self.get(block) & bit::USES).max(self.get(from) & bit::USES);
        let tag = self.get_mut(block);
        *tag = *tag & !bit::USES | uses;
    }

    pub fn set_grade(&mut self, block: BlockId, grade: Grade) {
        let tag = self.get_mut(block);
        *tag = *tag & !bit::GRADE | u32::from(grade.0) << bit::GRADE_SHIFT;
    }

    pub fn class(&self, block: BlockId) -> usize {
        self.waiting(block).class()
    }

    pub fn grade(&self, block: BlockId) -> Grade {
        self.waiting(block).grade()
    }

    pub fn is_sampled(&self, block: BlockId) -> bool {
        self.get(block) & bit::SAMPLED != 0
    }

    pub fn is_watched(&self, block: BlockId) -> bool {
        self.get(block) & bit::WATCHED != 0
    }

    pub fn place(&self, block: BlockId) -> Place {
        let tag = self.get(block);
        if tag & bit::LISTED != 0 {
            Place::Listed
        } else if tag & bit::HELD != 0 {
            Place::Held
        } else {
            Place::Elsewhere
        }
    }

    /// The epoch in which the block became free last, modulo 2^16.
    pub fn epoch(&self, block: BlockId) -> u16 {
        (self.get(block) >> bit::EPOCH_SHIFT) as u16
    }

    pub fn set_place(&mut self, block: BlockId, place: Place) {
        let tag = self.get_mut(block);
        *tag &= !bit::PLACE;
        *tag |= match place {
            Place::Elsewhere => 0,
            Place::Listed => bit::LISTED,
            Place::Held => bit::HELD,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockId = 3;

    fn tags(mark: Mark) -> Tags {
        let mut tags = Tags::new(8);
        tags.start(BLOCK, mark, false);
        tags
    }

    #[test]
    fn classes_are_by_doublings_of_uses() {
        let mut tags = tags(Mark::default());
        let classes: Vec<_> = (1..=20)
            .map(|_| {
                let class = tags.class(BLOCK);
                tags.add_use(BLOCK);
                class
            })
            .collect();
        assert_eq!(classes[..8], [0, 1, 1, 2, 2, 2, 2, 3]);
        assert!(classes[8..].iter().all(|&class| class == 3));
        assert_eq!(tags.grade(BLOCK), Grade::BEST, "uses stay in their bits");
    }

    #[test]
    fn a_hit_is_the_best_grade() {
        let mut tags = tags(Mark { grade: Grade::WORST, is_tail: true, is_watched: false });
        assert_eq!(tags.grade(BLOCK), Grade::WORST);
        tags.add_use(BLOCK);
        assert_eq!(tags.grade(BLOCK), Grade::BEST);
        assert!(tags.waiting(BLOCK).is_tail() && !tags.is_watched(BLOCK));
    }

    #[test]
    fn a_tag_moves_without_its_place() {
        let mut tags = tags(Mark { grade: Grade::new(2), is_tail: true, is_watched: true });
        tags.wait(BLOCK, 0xabcd);
        tags.set_place(5, Place::Held);
        tags.copy(BLOCK, 5);
        assert_eq!((tags.place(BLOCK), tags.place(5)), (Place::Listed, Place::Held));
        assert_eq!((tags.grade(5), tags.epoch(5)), (Grade::new(2), 0xabcd));
        assert!(tags.waiting(5).is_tail() && tags.is_watched(5));
    }

    #[test]
    fn the_more_uses_are_inherited() {
        let mut tags = tags(Mark::default());
        (0..4).for_each(|_| tags.add_use(BLOCK));
        tags.inherit_uses(5, BLOCK);
        assert_eq!(tags.class(5), 2);
        tags.inherit_uses(BLOCK, 6);
        assert_eq!(tags.class(BLOCK), 2);
    }

    #[test]
    fn grades_end_with_the_worst_and_half_is_worth_holding() {
        assert_eq!(Grade::new(100), Grade::WORST);
        assert_eq!([0, 1, 2].map(|n| Grade::new(n).is_worth_holding()), [true, true, false]);
    }
}
