//! The tags of all blocks.

use super::block_meta::{Epoch, Place, Stamp, Tag, TagRow, bit, used};
use super::meta_writer::TagWriter;
use super::sampled::Sampled;
use crate::block::BlockId;
use crate::pool::blocks::prefault;
use crate::pool::blocks::run::IdRun;
use crate::pool::eviction::nearness::Nearness;
use crate::pool::eviction::value::Grade;

/// The tags of all blocks.
#[derive(Debug)]
pub(crate) struct Tags {
    tags: Vec<u32>,
    /// Those whose tags say so.
    sampled: Sampled,
}

impl Tags {
    pub fn new(num_blocks: usize) -> Self {
        Self { tags: prefault::zeros(num_blocks), sampled: Sampled::new(num_blocks) }
    }

    fn get(&self, block: BlockId) -> u32 {
        self.tags[block as usize]
    }

    pub fn of(&self, block: BlockId) -> Tag {
        Tag(self.get(block))
    }

    fn get_mut(&mut self, block: BlockId) -> &mut u32 {
        &mut self.tags[block as usize]
    }

    /// To change the tags of many blocks.
    #[inline]
    pub fn writer(&mut self) -> TagWriter<'_> {
        TagWriter::new(&mut self.tags, &mut self.sampled)
    }

    /// To change the tags of blocks in a row that wait alike; none if they do not, or the null
    /// block is among them.
    #[inline]
    pub fn row_alike(&mut self, row: IdRun, stamp: Stamp) -> Option<TagRow<'_>> {
        TagRow::of(row.slice_mut(&mut self.tags)?, stamp.mask, stamp.waiting)
    }

    /// To change the tags of blocks in a row that are all in a list, or all in none, and of which no
    /// request claimed any; none if it is not so, or the null block is among them.
    #[inline]
    pub fn row_of_plain(&mut self, row: IdRun, are_listed: bool) -> Option<TagRow<'_>> {
        let place = if are_listed { bit::LISTED } else { 0 };
        TagRow::of(row.slice_mut(&mut self.tags)?, bit::PLACE | bit::CLAIMED, place)
    }

    /// To change the tags of blocks in a row, none of which may wait on; none if some may, they are
    /// few, or the null block is among them.
    #[inline]
    pub fn row_that_leaves(&mut self, row: IdRun) -> Option<TagRow<'_>> {
        if row.len() < IdRun::MIN_LEN {
            return None;
        }
        let first = self.of(row.first);
        let mask = first.why_it_leaves()?;
        TagRow::of(row.slice_mut(&mut self.tags)?, mask, first.0 & mask)
    }

    /// Blocks in a row become cached, if none of them is in a place yet; whether it is so.
    #[inline]
    pub fn start_row(&mut self, row: IdRun, first: Tag) -> bool {
        let Some(tags) = row.slice_mut(&mut self.tags) else { return false };
        if tags.iter().fold(0, |any, tag| any | tag) & bit::PLACE != 0 {
            return false;
        }
        tags.fill(first.0);
        self.sampled.remove_row(row);
        true
    }

    /// A block that was not of the sample is from now on.
    #[inline]
    pub fn add_to_sample(&mut self, block: BlockId) {
        *self.get_mut(block) |= bit::SAMPLED;
        self.sampled.toggle(block);
    }

    /// The blocks of the sample.
    pub fn sampled(&self) -> &Sampled {
        &self.sampled
    }

    /// What is wrong with the blocks of the sample.
    pub fn check(&self) -> Result<(), String> {
        let is_wrong = |block: &BlockId| self.of(*block).is_sampled() != self.sampled.has(*block);
        match (0..self.tags.len() as u32).find(is_wrong) {
            Some(block) => Err(format!("block {block} is listed wrongly in the sample")),
            None => Ok(()),
        }
    }

    /// All but the place.
    pub fn copy(&mut self, from: BlockId, to: BlockId) {
        let tag = Tag(self.get(from) & !bit::PLACE);
        self.writer().start(to, tag);
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
        *tag = *tag & !bit::GRADE | (grade.halvings() as u32) << bit::GRADE_SHIFT;
    }

    /// A full block that has just become cached lies near the end of its prompt.
    #[inline]
    pub fn set_nearness(&mut self, block: BlockId, nearness: Nearness) {
        *self.get_mut(block) |= nearness.bits() << bit::NEARNESS_SHIFT;
    }

    /// A tail waits on because a request resumed there: it does so once more only if another does.
    pub fn forget_hit(&mut self, block: BlockId) {
        *self.get_mut(block) &= !bit::HIT;
    }

    pub fn set_claimed(&mut self, block: BlockId, on: bool) {
        let tag = self.get_mut(block);
        *tag = if on { *tag | bit::CLAIMED } else { *tag & !bit::CLAIMED };
    }

    /// A block waits on the ladder from an epoch on.
    pub fn wait_on_ladder(&mut self, block: BlockId, epoch: Epoch) {
        let tag = self.get_mut(block);
        let place = bit::LADDER | epoch.bits();
        *tag = *tag & !(bit::PLACE | bit::EPOCH) | place;
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
    use proptest::prelude::*;

    use super::*;
    use crate::pool::eviction::adaptive::Mark;

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
    fn a_tail_waits_on_once_for_each_resume_and_always_if_it_lasts() {
        for lasts in [false, true] {
            let grade = if lasts { Grade::BEST.lasting() } else { Grade::BEST };
            let mut tags = tags(Mark { grade, is_tail: true, is_watched: false });
            let may_wait_on = |tags: &Tags| tags.of(BLOCK).may_wait_on();
            assert_eq!(may_wait_on(&tags), lasts);
            for _ in 0..2 {
                tags.hit(BLOCK, false);
                assert!(may_wait_on(&tags));
                tags.forget_hit(BLOCK);
                assert_eq!(may_wait_on(&tags), lasts);
            }
        }
    }

    #[test]
    fn how_near_the_end_of_its_prompt_a_block_lies_stays_known() {
        let mut tags = tags(Mark { is_watched: true, ..Mark::default() });
        for (block, tokens) in [(BLOCK, 100), (5, 0)] {
            tags.set_nearness(block, Nearness::of(tokens));
        }
        let waiting = tags.of(BLOCK).waiting();
        tags.hit(BLOCK, false);
        assert!(tags.wait_alike(BLOCK, Stamp::new(waiting, Epoch::new(1), true)).is_none());
        let waiting = tags.of(BLOCK).waiting();
        assert!(tags.wait_alike(BLOCK, Stamp::new(waiting, Epoch::new(0x7fff), true)).is_some());
        let nearness = [BLOCK, 5, 6].map(|block| tags.of(block).nearness());
        assert_eq!(nearness, [100, 0, 512].map(Nearness::of));
        assert_eq!(tags.of(BLOCK).epoch(), Epoch::new(0x3fff));
    }

    #[test]
    fn what_leaves_in_a_row_does_not_wait_on() {
        let bits = |i: u32| {
            let flag = |n: u32, bit: u32| (i >> n & 1) * bit;
            let flags = flag(0, bit::TAIL) | flag(1, bit::HIT) | flag(2, bit::LASTS);
            Tag(flags | (i >> 3) << bit::GRADE_SHIFT)
        };
        let all: Vec<_> = (0..1 << 6).map(bits).collect();
        for first in &all {
            assert_eq!(first.why_it_leaves().is_none(), first.may_wait_on());
            let Some(mask) = first.why_it_leaves() else { continue };
            let alike = all.iter().filter(|other| (other.0 ^ first.0) & mask == 0);
            assert_eq!(alike.filter(|other| other.may_wait_on()).count(), 0, "{first:?}");
        }
        assert!(all.iter().any(|tag| tag.may_wait_on()));
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
        assert!(tags.wait_alike(BLOCK, Stamp::new(waiting, Epoch::new(0xabcd), true)).is_some());
        assert!(tags.wait_alike(BLOCK, Stamp::NONE).is_none());
        tags.set_place(5, Place::Held);
        tags.copy(BLOCK, 5);
        assert_eq!((tags.of(BLOCK).place(), tags.of(5).place()), (Place::Listed, Place::Held));
        assert_eq!((grade(&tags, 5), tags.of(5).epoch()), (Grade::new(2), Epoch::new(0xabcd)));
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
    fn a_block_that_is_listed_wrongly_in_the_sample_is_found() {
        let mut tags = tags(Mark::default());
        tags.writer().start(5, Tag::first(Mark::default()));
        tags.add_to_sample(5);
        tags.copy(5, 6);
        tags.copy(BLOCK, 5);
        assert_eq!(tags.check(), Ok(()));
        assert!(!tags.sampled().has(5) && tags.sampled().has(6));
        tags.sampled.toggle(5);
        assert_eq!(tags.check(), Err("block 5 is listed wrongly in the sample".into()));
    }

    /// Tags of 100 blocks that differ in few bits, and the null block's.
    fn some_tags() -> impl Strategy<Value = Tags> {
        let bits = prop::collection::vec(any::<u32>(), 101);
        (any::<u32>(), any::<u32>(), any::<u32>(), bits).prop_map(|(all, a, b, bits)| {
            let all = all & !(bit::PLACE | bit::CLAIMED);
            let others = a & b & !(bit::HELD | bit::LADDER | bit::CLAIMED);
            let tags = bits.into_iter().map(|bits| all ^ bits & others).collect();
            Tags { tags, sampled: Sampled::new(101) }
        })
    }

    proptest! {
        #[test]
        fn blocks_in_a_row_are_hit_as_one_by_one(tags in some_tags(), row in some_row()) {
            let (mut tags, mut others) = (tags.tags.clone(), tags);
            let is_listed = |tag: u32| tag & bit::PLACE == bit::LISTED;
            let (low, high) = row.bounds();
            let blocks = low..high + 1;
            for are_listed in [false, true] {
                let are_plain = blocks.clone().all(|i| is_listed(tags[i as usize]) == are_listed);
                let hit = others.row_of_plain(row, are_listed).map(|mut row| row.hit());
                prop_assert_eq!(hit.is_some(), are_plain);
                if let Some(num_watched) = hit {
                    let mut one_by_one = Tags { tags, sampled: Sampled::new(101) };
                    let watched = blocks.clone().map(|i| one_by_one.hit(i, true).num_watched());
                    prop_assert_eq!(num_watched, watched.sum());
                    tags = one_by_one.tags;
                }
                prop_assert_eq!(&tags, &others.tags);
            }
        }

        #[test]
        fn blocks_in_a_row_wait_as_one_by_one(
            tags in some_tags(),
            row in some_row(),
            are_tails_apart: bool,
        ) {
            let mut others = Tags { tags: tags.tags.clone(), sampled: Sampled::new(101) };
            let mut tags = tags;
            let stamp = Stamp::new(tags.of(row.first).waiting(), Epoch::new(77), are_tails_apart);
            let (low, high) = row.bounds();
            let blocks = low..high + 1;
            let num_watched = others.row_alike(row, stamp).map(|mut row| row.wait(stamp));
            let is_alike = |block| tags.get(block) & stamp.mask == stamp.waiting;
            prop_assert_eq!(num_watched.is_some(), blocks.clone().all(is_alike));
            if num_watched.is_some() {
                let tags = blocks.map(|block| tags.wait_alike(block, stamp));
                prop_assert_eq!(num_watched, tags.map(|tag| tag.map(Tag::num_watched)).sum());
            }
            prop_assert_eq!(tags.tags, others.tags);
        }
    }

    fn some_row() -> impl Strategy<Value = IdRun> {
        (1_u32..101, 1_u32..101)
            .prop_filter("two blocks", |(first, last)| first != last)
            .prop_map(|(first, last)| IdRun { first, last })
    }
}
