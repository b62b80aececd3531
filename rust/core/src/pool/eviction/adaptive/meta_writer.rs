//! Changes to the tags of many blocks, one after the other.

use super::block_meta::{Stamp, Tag, Uses, bit, used};
use super::sampled::Sampled;
use crate::block::BlockId;

/// Changes the tags of blocks.
pub(crate) struct TagWriter<'a> {
    tags: &'a mut [u32],
    sampled: &'a mut Sampled,
}

impl<'a> TagWriter<'a> {
    /// The tags of all blocks, and which of them are of the sample.
    pub fn new(tags: &'a mut [u32], sampled: &'a mut Sampled) -> Self {
        Self { tags, sampled }
    }

    /// A block becomes cached.
    #[inline]
    pub fn start(&mut self, block: BlockId, first: Tag) {
        let tag = &mut self.tags[block as usize];
        let was = *tag;
        *tag = was & bit::PLACE | first.0;
        if (was ^ first.0) & bit::SAMPLED != 0 {
            self.sampled.toggle(block);
        }
    }

    /// As [`Tags::hit`], of a block that is in a list, which no block in use is, if no request
    /// claimed it; what it was.
    #[inline]
    pub fn hit_listed(&mut self, block: BlockId) -> Option<Tag> {
        let tag = &mut self.tags[block as usize];
        let was = *tag;
        if was & (bit::PLACE | bit::CLAIMED) != bit::LISTED {
            return None;
        }
        *tag = used(was) & !bit::PLACE;
        Some(Tag(was))
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.tags.len()
    }

    /// As [`Tags::wait_alike`], if `is_so`.
    #[inline]
    pub fn wait_alike_if(
        &mut self,
        block: BlockId,
        stamp: Stamp,
        is_so: impl FnOnce() -> bool,
    ) -> Option<Tag> {
        let tag = &mut self.tags[block as usize];
        let was = *tag;
        if was & stamp.mask != stamp.waiting || !is_so() {
            return None;
        }
        *tag = was & !(bit::PLACE | bit::EPOCH) | stamp.place;
        Some(Tag(was))
    }

    /// How often a block has been used.
    #[inline]
    pub fn uses(&self, block: BlockId) -> Uses {
        Tag(self.tags[block as usize]).uses()
    }

    /// As [`Tags::leave`], if it is no tail that may wait on beside its prefix.
    #[inline]
    pub fn leave_unless_waiting_on(&mut self, block: BlockId) -> Option<Tag> {
        let tag = &mut self.tags[block as usize];
        let was = Tag(*tag);
        if was.may_wait_on() {
            return None;
        }
        *tag = was.0 & !bit::PLACE;
        Some(was)
    }

    /// A sequence ends at a tail that has been used as often as a block of its prefix.
    #[inline]
    pub fn promote(&mut self, tail: BlockId, uses: Uses) {
        let tag = &mut self.tags[tail as usize];
        *tag = *tag & !(bit::USES | bit::GRADE) | uses.0.max(*tag & bit::USES);
    }
}
