//! The tags of all blocks.

use super::tag::{Place, Stamp, Tag, TagRow, bit, used};
use super::tag_writer::TagWriter;
use crate::block::BlockId;
use crate::pool::grade::Grade;
use crate::pool::present;
use crate::rows::Row;

/// The tags of all blocks.
#[derive(Debug)]
pub(super) struct Tags(Vec<u32>);

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

    /// To change the tags of blocks in a row; none if the null block is among them.
    #[inline]
    pub fn row(&mut self, row: Row) -> Option<TagRow<'_>> {
        row.of_list(&mut self.0).map(TagRow)
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
    use crate::pool::adaptive::Mark;

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
}
