//! What the order of eviction knows of each block: four bytes.

use super::tag_writer::TagWriter;
use crate::block::BlockId;
use crate::pool::present;

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
    /// On a rung of the ladder, for blocks of another priority than the default.
    Ladder,
}

pub(super) mod bit {
    pub const USES: u32 = 0xf;
    pub const GRADE_SHIFT: u32 = 4;
    pub const GRADE: u32 = 0x7 << GRADE_SHIFT;
    /// Grades beyond those worth holding have one of these.
    pub const POOR: u32 = 0x6 << GRADE_SHIFT;
    pub const TAIL: u32 = 1 << 7;
    pub const WATCHED_SHIFT: u32 = 8;
    pub const WATCHED: u32 = 1 << WATCHED_SHIFT;
    pub const LISTED: u32 = 1 << 9;
    pub const HELD: u32 = 1 << 10;
    pub const SAMPLED: u32 = 1 << 11;
    pub const CLAIMED: u32 = 1 << 12;
    pub const LADDER: u32 = 1 << 13;
    pub const EPOCH_SHIFT: u32 = 16;
    pub const EPOCH: u32 = 0xffff << EPOCH_SHIFT;
    pub const PLACE: u32 = LISTED | HELD | LADDER;
    /// What decides where a block waits.
    pub const WAITING: u32 = USES | GRADE | TAIL | CLAIMED;
    /// What somebody wants to know of who hits the block.
    pub const NOTED: u32 = SAMPLED | CLAIMED;
}

/// What is known of one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag(pub(super) u32);

impl Tag {
    pub fn waiting(self) -> Waiting {
        Waiting(self.0 & bit::WAITING)
    }

    pub fn is_sampled(self) -> bool {
        self.0 & bit::SAMPLED != 0
    }

    /// The same, of a block of the sample.
    pub fn sampled(self) -> Self {
        Self(self.0 | bit::SAMPLED)
    }

    pub fn uses(self) -> Uses {
        Uses(self.0 & bit::USES)
    }

    /// Whether a request claimed another priority for it.
    pub fn is_claimed(self) -> bool {
        self.0 & bit::CLAIMED != 0
    }

    /// 1 if it is watched, else 0.
    #[inline]
    pub fn num_watched(self) -> usize {
        (self.0 >> bit::WATCHED_SHIFT) as usize & 1
    }

    /// Whether it is part of a window's tail or a state that is held while its request runs.
    #[inline]
    pub fn is_held_tail(self) -> bool {
        self.waiting().is_held_tail()
    }

    /// A block that becomes cached is used for the first time.
    pub fn first(mark: Mark) -> Self {
        let flag = |is_set: bool, bit: u32| u32::from(is_set) * bit;
        let flags = flag(mark.is_tail, bit::TAIL) | flag(mark.is_watched, bit::WATCHED);
        Self(1 | u32::from(mark.grade.0) << bit::GRADE_SHIFT | flags)
    }

    pub fn place(self) -> Place {
        if self.0 & bit::LISTED != 0 {
            Place::Listed
        } else if self.0 & bit::HELD != 0 {
            Place::Held
        } else if self.0 & bit::LADDER != 0 {
            Place::Ladder
        } else {
            Place::Elsewhere
        }
    }
}

/// How blocks of one list wait: what they have in common, and what becomes of their tags.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) mask: u32,
    pub(super) waiting: u32,
    pub(super) place: u32,
}

impl Stamp {
    /// As no block waits.
    pub const NONE: Self = Self { mask: 0, waiting: u32::MAX, place: 0 };

    /// For blocks of one list in an epoch; tails are kept apart if some of them may be held.
    pub fn new(waiting: Waiting, epoch: u16, are_tails_apart: bool) -> Self {
        let mask = if are_tails_apart { bit::WAITING } else { bit::WAITING & !bit::TAIL };
        let place = bit::LISTED | u32::from(epoch) << bit::EPOCH_SHIFT;
        Self { mask, waiting: waiting.0 & mask, place }
    }

    /// The class of the blocks.
    pub fn class(self) -> usize {
        Waiting(self.waiting).class()
    }
}

/// How often a block has been used, as far as it is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uses(pub(super) u32);

/// The bits of a block that is used once more: the best grade.
#[inline]
pub(super) fn used(was: u32) -> u32 {
    (was + u32::from(was & bit::USES != bit::USES)) & !bit::GRADE
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

    /// Whether it is a tail that is held while its request runs: see [`Grade::is_worth_holding`].
    #[inline]
    pub fn is_held_tail(self) -> bool {
        self.0 & (bit::TAIL | bit::POOR) == bit::TAIL
    }
}

/// Classes of blocks by the uses of their prefix: 1, 2 to 3, 4 to 7, 8 and more.
pub(super) const CLASSES: usize = 4;

impl Tags {
    pub fn new(num_blocks: usize) -> Self {
        Self(present::zeros(0, num_blocks))
    }

    fn get(&self, block: BlockId) -> u32 {
        self.0[block as usize]
    }

    pub fn of(&self, block: BlockId) -> Tag {
        Tag(self.get(block))
    }

    fn get_mut(&mut self, block: BlockId) -> &mut u32 {
        &mut self.0[block as usize]
    }

    /// To change the tags of many blocks.
    #[inline]
    pub fn writer(&mut self) -> TagWriter<'_> {
        TagWriter::new(&mut self.0)
    }

    /// All but the place.
    pub fn copy(&mut self, from: BlockId, to: BlockId) {
        let tag = self.get(from) & !bit::PLACE;
        let to = self.get_mut(to);
        *to = *to & bit::PLACE | tag;
    }

    /// A hit: a tail that serves one is worth as much as the full blocks that it goes with. One
    /// that is free leaves its place; what it was.
    #[inline]
    pub fn hit(&mut self, block: BlockId, is_free: bool) -> Tag {
        let tag = self.get_mut(block);
        let was = *tag;
        *tag = used(was) & !if is_free { bit::PLACE } else { 0 };
        Tag(was)
    }

    /// A block waits in a list from an epoch on, if it waits as others do; what it was.
    #[inline]
    pub fn wait_alike(&mut self, block: BlockId, stamp: Stamp) -> Option<Tag> {
        let tag = self.get_mut(block);
        let was = *tag;
        if was & stamp.mask != stamp.waiting {
            return None;
        }
        *tag = was & !(bit::PLACE | bit::EPOCH) | stamp.place;
        Some(Tag(was))
    }

    /// A block leaves its place; what it was.
    #[inline]
    pub fn leave(&mut self, block: BlockId) -> Tag {
        let tag = self.get_mut(block);
        let was = *tag;
        *tag &= !bit::PLACE;
        Tag(was)
    }

    /// A block has been used at least as often as another.
    #[inline]
    pub fn inherit_uses(&mut self, block: BlockId, from: BlockId) {
        let from = self.get(from) & bit::USES;
        let tag = self.get_mut(block);
        *tag = *tag & !bit::USES | from.max(*tag & bit::USES);
    }

    #[inline]
    pub fn set_grade(&mut self, block: BlockId, grade: Grade) {
        let tag = self.get_mut(block);
        *tag = *tag & !bit::GRADE | u32::from(grade.0) << bit::GRADE_SHIFT;
    }

    pub fn set_claimed(&mut self, block: BlockId, on: bool) {
        let tag = self.get_mut(block);
        *tag = if on { *tag | bit::CLAIMED } else { *tag & !bit::CLAIMED };
    }

    /// A block waits on the ladder from an epoch on.
    pub fn wait_on_ladder(&mut self, block: BlockId, epoch: u16) {
        let tag = self.get_mut(block);
        let place = bit::LADDER | u32::from(epoch) << bit::EPOCH_SHIFT;
        *tag = *tag & !(bit::PLACE | bit::EPOCH) | place;
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
            Place::Ladder => bit::LADDER,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockId = 3;

    fn tags(mark: Mark) -> Tags {
        let mut tags = Tags::new(8);
        tags.writer().start(BLOCK, Tag::first(mark));
        tags
    }

    fn class(tags: &Tags, block: BlockId) -> usize {
        tags.of(block).waiting().class()
    }

    fn grade(tags: &Tags, block: BlockId) -> Grade {
        tags.of(block).waiting().grade()
    }

    #[test]
    fn a_hit_leaves_a_place_only_if_the_block_was_free() {
        let mut tags = tags(Mark::default());
        tags.set_place(BLOCK, Place::Listed);
        assert_eq!(tags.hit(BLOCK, false).place(), Place::Listed);
        assert_eq!(tags.hit(BLOCK, true).place(), Place::Listed);
        assert_eq!(tags.of(BLOCK).place(), Place::Elsewhere);
    }

    #[test]
    fn classes_are_by_doublings_of_uses() {
        let mut tags = tags(Mark::default());
        let classes: Vec<_> = (1..=20)
            .map(|_| {
                let class = class(&tags, BLOCK);
                tags.hit(BLOCK, false);
                class
            })
            .collect();
        assert_eq!(classes[..8], [0, 1, 1, 2, 2, 2, 2, 3]);
        assert!(classes[8..].iter().all(|&class| class == 3));
        assert_eq!(grade(&tags, BLOCK), Grade::BEST, "uses stay in their bits");
    }

    #[test]
    fn a_hit_is_the_best_grade() {
        let mut tags = tags(Mark { grade: Grade::WORST, is_tail: true, is_watched: false });
        assert_eq!(grade(&tags, BLOCK), Grade::WORST);
        tags.hit(BLOCK, false);
        assert_eq!(grade(&tags, BLOCK), Grade::BEST);
        assert!(tags.of(BLOCK).waiting().is_tail() && tags.of(BLOCK).num_watched() == 0);
    }

    #[test]
    fn a_tag_moves_without_its_place() {
        let mut tags = tags(Mark { grade: Grade::new(2), is_tail: true, is_watched: true });
        let waiting = tags.of(BLOCK).waiting();
        assert!(tags.wait_alike(BLOCK, Stamp::new(waiting, 0xabcd, true)).is_some());
        assert!(tags.wait_alike(BLOCK, Stamp::NONE).is_none());
        tags.set_place(5, Place::Held);
        tags.copy(BLOCK, 5);
        assert_eq!((tags.of(BLOCK).place(), tags.of(5).place()), (Place::Listed, Place::Held));
        assert_eq!((grade(&tags, 5), tags.epoch(5)), (Grade::new(2), 0xabcd));
        assert!(tags.of(5).waiting().is_tail() && tags.of(5).num_watched() == 1);
    }

    #[test]
    fn the_more_uses_are_inherited() {
        let mut tags = tags(Mark::default());
        (0..4).for_each(|_| _ = tags.hit(BLOCK, false));
        tags.inherit_uses(5, BLOCK);
        assert_eq!(class(&tags, 5), 2);
        tags.inherit_uses(BLOCK, 6);
        assert_eq!(class(&tags, BLOCK), 2);
    }

    #[test]
    fn tails_are_held_whose_grade_is_worth_it() {
        for halvings in 0..Grade::COUNT {
            let grade = Grade::new(halvings);
            let is_held =
                |is_tail| tags(Mark { grade, is_tail, is_watched: true }).of(BLOCK).is_held_tail();
            assert_eq!((is_held(true), is_held(false)), (grade.is_worth_holding(), false));
        }
    }

    #[test]
    fn grades_end_with_the_worst_and_half_is_worth_holding() {
        assert_eq!(Grade::new(100), Grade::WORST);
        assert_eq!([0, 1, 2].map(|n| Grade::new(n).is_worth_holding()), [true, true, false]);
    }
}
