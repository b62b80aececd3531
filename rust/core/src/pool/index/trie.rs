//! Which blocks serve one chain of hashes from its start on, so that a look-up of a chain need not
//! read each of its hashes.
//!
//! A *segment* lists the blocks that serve the keys of some positions in a row; what is before them
//! stands in the segment's parent, of which it continues a number of blocks. So the segments form
//! trees, as prefixes do: a chain that parts from another begins a child there.
//!
//! Between calls: each block that a segment lists serves its own key, the one of its position, and
//! names that segment; a segment that has a child behind its end has lost blocks there, and is not
//! extended any more, since that would revive the child. Sound only for hashes that determine all
//! before them.

use crate::block::BlockId;

/// Names a segment, in two bytes of every block. A block that is listed names its own.
pub type SegmentId = u16;

/// No segment.
pub const NO_SEGMENT: SegmentId = 0;

/// The segments of a pool.
#[derive(Debug)]
pub struct PrefixTrie {
    /// The first stands for what is before the start of every chain.
    segments: Vec<Segment>,
    vacant: Vec<SegmentId>,
}

#[derive(Debug, Default)]
struct Segment {
    /// Changes when the slot is used anew.
    generation: u32,
    parent: SegmentId,
    parent_generation: u32,
    /// Blocks of the parent that come before.
    num_of_parent: usize,
    /// Position of the first block in its chain.
    start: usize,
    /// Tokens per block.
    block_size: usize,
    blocks: Vec<BlockId>,
    /// The most blocks that a child continued.
    num_continued: usize,
}

/// A block that names a segment.
#[derive(Clone, Copy, Debug)]
pub struct TrieBlock {
    /// The block.
    pub block: BlockId,
    /// The segment that it names.
    pub slot: SegmentId,
}

/// Where a block stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    slot: SegmentId,
    /// Blocks of the segment up to it.
    len: usize,
}

/// A chain without a gap, from its start up to some block: its segments, last first.
#[derive(Clone, Debug, Default)]
pub struct TriePath {
    places: Vec<Place>,
}

impl Default for PrefixTrie {
    fn default() -> Self {
        Self { segments: vec![Segment::default()], vacant: Vec::new() }
    }
}

impl PrefixTrie {
    /// Shorter trie are not worth their links: they are looked up as fast without.
    pub const MIN_HASHES: usize = 32;
    /// How many slots there are.
    const MAX_SLOTS: usize = SegmentId::MAX as usize + 1;
    /// Longer paths are not followed.
    const MAX_SEGMENTS: usize = 1024;

    /// The length from which trie are linked now: longer ones where slots are scarce.
    pub fn min_hashes(&self) -> usize {
        let num_left = Self::MAX_SLOTS - self.segments.len() + self.vacant.len();
        match num_left * 4 / Self::MAX_SLOTS {
            2.. => Self::MIN_HASHES,
            1 => 8 * Self::MIN_HASHES,
            _ => 32 * Self::MIN_HASHES,
        }
    }

    /// The segment that is to list the blocks from position `first` on, behind the block that
    /// serves the key before; [`NO_SEGMENT`] if that one is not listed, or no slot is left. One
    /// that nothing is added to has to be [closed](Self::close).
    pub fn open(
        &mut self,
        before: Option<TrieBlock>,
        first: usize,
        block_size: usize,
    ) -> SegmentId {
        let Some(parent) = self.place_before(before, first) else { return NO_SEGMENT };
        let Segment { blocks, num_continued, .. } = &self.segments[parent.slot as usize];
        let is_end = parent.slot != NO_SEGMENT && blocks.len() == parent.len;
        match is_end && *num_continued <= parent.len {
            true => parent.slot,
            false => self.begin(parent, first, block_size),
        }
    }

    fn place_before(&self, before: Option<TrieBlock>, first: usize) -> Option<Place> {
        match (before, first.checked_sub(1)) {
            (None, None) => Some(Place { slot: NO_SEGMENT, len: 0 }),
            (Some(before), Some(position)) => self.place(before, position),
            _ => None,
        }
    }

    #[inline(never)]
    fn begin(&mut self, parent: Place, start: usize, block_size: usize) -> SegmentId {
        let Some(slot) = self.vacant_slot() else { return NO_SEGMENT };
        let above = &mut self.segments[parent.slot as usize];
        above.num_continued = above.num_continued.max(parent.len);
        let parent_generation = above.generation;
        let Segment { generation, .. } = self.segments[slot as usize];
        self.segments[slot as usize] = Segment {
            generation,
            parent: parent.slot,
            parent_generation,
            num_of_parent: parent.len,
            start,
            block_size,
            ..Segment::default()
        };
        slot
    }

    fn vacant_slot(&mut self) -> Option<SegmentId> {
        self.vacant.pop().or_else(|| {
            let slot = SegmentId::try_from(self.segments.len()).ok()?;
            self.segments.push(Segment::default());
            Some(slot)
        })
    }

    /// Lists blocks that serve the keys from position `first` on and name the segment that was
    /// opened for them.
    pub fn push(&mut self, slot: SegmentId, first: usize, blocks: &[BlockId]) {
        let segment = &mut self.segments[slot as usize];
        // What was opened may have lost its end since.
        if segment.block_size > 0 && segment.start + segment.blocks.len() == first {
            segment.blocks.extend_from_slice(blocks);
        }
        self.close(slot);
    }

    /// Lets a segment go if it lists nothing.
    pub fn close(&mut self, slot: SegmentId) {
        self.segments[slot as usize].vacate_if_empty(slot, &mut self.vacant);
    }

    #[inline]
    fn place(&self, TrieBlock { block, slot }: TrieBlock, position: usize) -> Option<Place> {
        let segment = &self.segments[slot as usize];
        let index = position.checked_sub(segment.start)?;
        (segment.blocks.get(index) == Some(&block)).then_some(Place { slot, len: index + 1 })
    }

    /// Whether a block is listed at a position.
    pub fn lists(&self, link: TrieBlock, position: usize) -> bool {
        self.place(link, position).is_some()
    }

    /// Blocks, of which the first names a segment, will not serve their keys any more. Those at its
    /// start that are the last ones of the segment, last first, leave it; how many.
    #[inline]
    pub fn pop(&mut self, slot: SegmentId, blocks: impl Iterator<Item = BlockId>) -> usize {
        let segment = &mut self.segments[slot as usize];
        let listed = segment.blocks.iter().rev();
        let num_popped = listed.zip(blocks).take_while(|&(&last, block)| last == block).count();
        if num_popped > 0 {
            segment.blocks.truncate(segment.blocks.len() - num_popped);
            segment.vacate_if_empty(slot, &mut self.vacant);
        }
        num_popped
    }

    /// A block that names a segment will not serve its key any more, which stands for so many
    /// tokens: the segment ends before it.
    #[cold]
    pub fn cut(&mut self, TrieBlock { block, slot }: TrieBlock, num_tokens: usize) {
        let segment = &mut self.segments[slot as usize];
        let position = (num_tokens / segment.block_size.max(1)).checked_sub(1 + segment.start);
        if let Some(index) = position.filter(|&i| segment.blocks.get(i) == Some(&block)) {
            segment.blocks.truncate(index);
            self.close(slot);
        }
    }

    /// The chain that ends with a block at a position, if none of its blocks is missing.
    pub fn path(&self, last: TrieBlock, position: usize) -> Option<TriePath> {
        let mut place = self.place(last, position)?;
        let mut places = Vec::with_capacity(4);
        while place.slot != NO_SEGMENT {
            let segment = &self.segments[place.slot as usize];
            let is_whole = segment.blocks.len() >= place.len && places.len() < Self::MAX_SEGMENTS;
            let above = &self.segments[segment.parent as usize];
            if !is_whole || above.generation != segment.parent_generation {
                return None;
            }
            places.push(place);
            place = Place { slot: segment.parent, len: segment.num_of_parent };
        }
        Some(TriePath { places })
    }

    /// Adds the blocks of a chain, first to last, to a list.
    pub fn read(&self, path: &TriePath, out: &mut Vec<BlockId>) {
        let first = path.places.first();
        out.reserve(first.map_or(0, |last| self.segments[last.slot as usize].start + last.len));
        for place in path.places.iter().rev() {
            out.extend_from_slice(&self.segments[place.slot as usize].blocks[..place.len]);
        }
    }

    /// Forgets all of them. Blocks may still name their slots.
    pub fn clear(&mut self) {
        for (slot, segment) in (0..=SegmentId::MAX).zip(&mut self.segments) {
            segment.blocks.clear();
            segment.vacate_if_empty(slot, &mut self.vacant);
        }
    }

    /// Every listed block, as it should name its segment, with the tokens that its key should stand
    /// for.
    pub fn listed(&self) -> impl Iterator<Item = (TrieBlock, usize)> + '_ {
        (0..=SegmentId::MAX).zip(&self.segments).flat_map(|(slot, segment)| {
            let positions = (segment.start + 1..).map(|n| n * segment.block_size);
            segment.blocks.iter().map(move |&block| TrieBlock { block, slot }).zip(positions)
        })
    }

    /// A segment that could be extended although a child behind its end would come back to life.
    pub fn broken_segment(&self) -> Option<SegmentId> {
        let forgets = |segment: &&Segment| {
            let above = &self.segments[segment.parent as usize];
            let is_child = above.generation == segment.parent_generation && segment.block_size > 0;
            is_child && above.num_continued < segment.num_of_parent
        };
        self.segments.iter().find(forgets).map(|segment| segment.parent)
    }
}

impl Segment {
    /// A segment that was let go before may still be named by a block that it had lost.
    #[inline]
    fn vacate_if_empty(&mut self, slot: SegmentId, vacant: &mut Vec<SegmentId>) {
        if self.blocks.is_empty() && self.block_size > 0 {
            let generation = self.generation.wrapping_add(1);
            *self = Self { generation, ..Self::default() };
            vacant.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_anew_once_its_segment_lists_nothing() {
        let mut trie = PrefixTrie::default();
        let slot = trie.open(None, 0, 4);
        trie.push(slot, 0, &[7, 8]);
        let link = |block| TrieBlock { block, slot };
        assert!(trie.path(link(8), 1).is_some());
        assert_eq!(trie.pop(slot, [8, 7, 9].into_iter()), 2);
        assert!(trie.path(link(7), 0).is_none());
        assert_eq!(trie.open(None, 0, 4), slot);
        trie.push(slot, 0, &[9]);
        let (child, generation) = (trie.open(Some(link(9)), 1, 4), trie.segments[1].generation);
        assert_eq!((child, generation), (slot, 1));
    }

    #[test]
    fn short_chains_are_left_out_when_slots_are_scarce_and_all_when_there_is_none() {
        let mut trie = PrefixTrie::default();
        let mut least = Vec::new();
        while let slot @ 1.. = trie.open(None, 0, 1) {
            trie.push(slot, 0, &[slot.into()]);
            least.push(trie.min_hashes());
        }
        least.dedup();
        assert_eq!(trie.segments.len(), PrefixTrie::MAX_SLOTS);
        assert_eq!(least, [1, 8, 32].map(|times| times * PrefixTrie::MIN_HASHES));
        trie.clear();
        assert_eq!(trie.min_hashes(), PrefixTrie::MIN_HASHES);
        assert_eq!(trie.listed().count(), 0);
    }
}
