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

/// Names a segment. A block that is listed names its own.
pub type Slot = u32;

/// No segment.
pub const NO_SEGMENT: Slot = 0;

/// The segments of a pool.
#[derive(Debug)]
pub struct Chains {
    /// The first stands for what is before the start of every chain.
    segments: Vec<Segment>,
    vacant: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Segment {
    /// Changes when the slot is used anew.
    generation: u32,
    parent: Slot,
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
pub struct Link {
    /// The block.
    pub block: BlockId,
    /// The segment that it names.
    pub slot: Slot,
}

/// Where a block stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    slot: Slot,
    /// Blocks of the segment up to it.
    len: usize,
}

/// A chain without a gap, from its start up to some block: its segments, last first.
#[derive(Clone, Debug, Default)]
pub struct Path {
    places: Vec<Place>,
}

impl Default for Chains {
    fn default() -> Self {
        Self { segments: vec![Segment::default()], vacant: Vec::new() }
    }
}

impl Chains {
    /// Shorter chains are not worth their links: they are looked up as fast without.
    pub const MIN_HASHES: usize = 32;
    /// Longer paths are not followed.
    const MAX_SEGMENTS: usize = 1024;

    /// The segment that is to list the blocks from position `first` on, behind the block that
    /// serves the key before; [`NO_SEGMENT`] if that one is not listed. One that nothing is added
    /// to has to be [closed](Self::close).
    pub fn open(&mut self, before: Option<Link>, first: usize, block_size: usize) -> Slot {
        let Some(parent) = self.place_before(before, first) else { return NO_SEGMENT };
        let Segment { blocks, num_continued, .. } = &self.segments[parent.slot as usize];
        let is_end = parent.slot != NO_SEGMENT && blocks.len() == parent.len;
        match is_end && *num_continued <= parent.len {
            true => parent.slot,
            false => self.begin(parent, first, block_size),
        }
    }

    fn place_before(&self, before: Option<Link>, first: usize) -> Option<Place> {
        match (before, first.checked_sub(1)) {
            (None, None) => Some(Place { slot: NO_SEGMENT, len: 0 }),
            (Some(before), Some(position)) => self.place(before, position),
            _ => None,
        }
    }

    #[inline(never)]
    fn begin(&mut self, parent: Place, start: usize, block_size: usize) -> Slot {
        let above = &mut self.segments[parent.slot as usize];
        above.num_continued = above.num_continued.max(parent.len);
        let parent_generation = above.generation;
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.segments.push(Segment::default());
            (self.segments.len() - 1) as Slot
        });
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

    /// Lists blocks that serve the keys from position `first` on and name the segment that was
    /// opened for them.
    pub fn push(&mut self, slot: Slot, first: usize, blocks: &[BlockId]) {
        let segment = &mut self.segments[slot as usize];
        // What was opened may have lost its end since.
        if segment.block_size > 0 && segment.start + segment.blocks.len() == first {
            segment.blocks.extend_from_slice(blocks);
        }
        self.close(slot);
    }

    /// Lets a segment go if it lists nothing.
    pub fn close(&mut self, slot: Slot) {
        self.segments[slot as usize].vacate_if_empty(slot, &mut self.vacant);
    }

    #[inline]
    fn place(&self, Link { block, slot }: Link, position: usize) -> Option<Place> {
        let segment = &self.segments[slot as usize];
        let index = position.checked_sub(segment.start)?;
        (segment.blocks.get(index) == Some(&block)).then_some(Place { slot, len: index + 1 })
    }

    /// Whether a block is listed at a position.
    pub fn lists(&self, link: Link, position: usize) -> bool {
        self.place(link, position).is_some()
    }

    /// Blocks, of which the first names a segment, will not serve their keys any more. Those at its
    /// start that are the last ones of the segment, last first, leave it; how many.
    #[inline]
    pub fn pop(&mut self, slot: Slot, blocks: impl Iterator<Item = BlockId>) -> usize {
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
    pub fn cut(&mut self, Link { block, slot }: Link, num_tokens: usize) {
        let segment = &mut self.segments[slot as usize];
        let position = (num_tokens / segment.block_size.max(1)).checked_sub(1 + segment.start);
        if let Some(index) = position.filter(|&i| segment.blocks.get(i) == Some(&block)) {
            segment.blocks.truncate(index);
            self.close(slot);
        }
    }

    /// The chain that ends with a block at a position, if none of its blocks is missing.
    pub fn path(&self, last: Link, position: usize) -> Option<Path> {
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
        Some(Path { places })
    }

    /// Adds the blocks of a chain, first to last, to a list.
    pub fn read(&self, path: &Path, out: &mut Vec<BlockId>) {
        let first = path.places.first();
        out.reserve(first.map_or(0, |last| self.segments[last.slot as usize].start + last.len));
        for place in path.places.iter().rev() {
            out.extend_from_slice(&self.segments[place.slot as usize].blocks[..place.len]);
        }
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Every listed block, as it should name its segment, with the tokens that its key should stand
    /// for.
    pub fn listed(&self) -> impl Iterator<Item = (Link, usize)> + '_ {
        (0..).zip(&self.segments).flat_map(|(slot, segment)| {
            let positions = (segment.start + 1..).map(|n| n * segment.block_size);
            segment.blocks.iter().map(move |&block| Link { block, slot }).zip(positions)
        })
    }

    /// A segment that could be extended although a child behind its end would come back to life.
    pub fn broken_segment(&self) -> Option<Slot> {
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
    fn vacate_if_empty(&mut self, slot: Slot, vacant: &mut Vec<Slot>) {
        if self.blocks.is_empty() && self.block_size > 0 {
            let generation = self.generation.wrapping_add(1);
            *self = Self { generation, ..Self::default() };
            vacant.push(slot);
        }
    }
}
