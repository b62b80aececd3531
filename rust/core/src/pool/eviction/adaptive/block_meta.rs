//! What the order of eviction knows of a block: four bytes.

use crate::pool::eviction::nearness::Nearness;
use crate::pool::eviction::value::Grade;

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
pub(crate) enum Place {
    /// In use, or in another queue.
    Elsewhere,
    /// In one of the ranked lists.
    Listed,
    /// In the held tier.
    Held,
    /// On a rung of the ladder, for blocks of another priority than the default.
    Ladder,
}

pub(crate) mod bit {
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
    pub const HIT: u32 = 1 << 14;
    pub const LASTS: u32 = 1 << 15;
    /// What lets a tail wait on.
    pub const WAITS_ON: u32 = HIT | LASTS;
    pub const NEARNESS_SHIFT: u32 = 16;
    pub const EPOCH_SHIFT: u32 = 18;
    pub const EPOCH: u32 = 0x3fff << EPOCH_SHIFT;
    pub const PLACE: u32 = LISTED | HELD | LADDER;
    /// What decides where a block waits.
    pub const WAITING: u32 = USES | GRADE | TAIL | CLAIMED;
}

/// What is known of one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag(pub(crate) u32);

impl Tag {
    pub fn waiting(self) -> Waiting {
        Waiting(self.0 & bit::WAITING)
    }

    pub fn is_sampled(self) -> bool {
        self.0 & bit::SAMPLED != 0
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

    /// Whether it is such a tail, and a request resumed there since it last waited on, or it lasts.
    /// Another that none resumed at although its prefix was used is inside of longer prompts by now,
    /// where hits end elsewhere.
    #[inline]
    pub fn may_wait_on(self) -> bool {
        self.is_held_tail() && self.0 & bit::WAITS_ON != 0
    }

    /// How near the end of its prompt a full block lies.
    pub fn nearness(self) -> Nearness {
        Nearness::from_bits(self.0 >> bit::NEARNESS_SHIFT)
    }

    /// The epoch in which the block became free last.
    pub fn epoch(self) -> Epoch {
        Epoch(self.0 >> bit::EPOCH_SHIFT)
    }

    /// The bits for which neither this block may wait on nor any other that has them alike.
    #[inline]
    pub fn why_it_leaves(self) -> Option<u32> {
        match self.0 {
            tag if tag & bit::TAIL == 0 => Some(bit::TAIL),
            tag if tag & bit::WAITS_ON == 0 => Some(bit::WAITS_ON),
            tag if tag & bit::POOR != 0 => Some(bit::POOR),
            _ => None,
        }
    }

    /// A block that becomes cached is used for the first time.
    pub fn first(mark: Mark) -> Self {
        let flag = |is_set: bool, bit: u32| u32::from(is_set) * bit;
        let flags = flag(mark.is_tail, bit::TAIL)
            | flag(mark.is_watched, bit::WATCHED)
            | flag(mark.grade.lasts(), bit::LASTS);
        Self(1 | (mark.grade.halvings() as u32) << bit::GRADE_SHIFT | flags)
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

/// An epoch, modulo 2^14.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u32);

impl Epoch {
    const MASK: u32 = bit::EPOCH >> bit::EPOCH_SHIFT;

    /// The `n`-th.
    pub fn new(n: usize) -> Self {
        Self(n as u32 & Self::MASK)
    }

    /// How many ended since an earlier one.
    pub fn age(self, earlier: Self) -> usize {
        (self.0.wrapping_sub(earlier.0) & Self::MASK) as usize
    }

    /// The one so many before.
    pub fn before(self, age: usize) -> Self {
        Self::new((self.0 as usize).wrapping_sub(age))
    }

    pub(crate) fn bits(self) -> u32 {
        self.0 << bit::EPOCH_SHIFT
    }
}

/// How blocks of one list wait: what they have in common, and what becomes of their tags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) mask: u32,
    pub(crate) waiting: u32,
    pub(crate) place: u32,
}

impl Stamp {
    /// As no block waits.
    pub const NONE: Self = Self { mask: 0, waiting: u32::MAX, place: 0 };

    /// For blocks of one list in an epoch; tails are kept apart if some of them may be held.
    pub fn new(waiting: Waiting, epoch: Epoch, are_tails_apart: bool) -> Self {
        let mask = if are_tails_apart { bit::WAITING } else { bit::WAITING & !bit::TAIL };
        let place = bit::LISTED | epoch.bits();
        Self { mask, waiting: waiting.0 & mask, place }
    }

    /// The class of the blocks.
    pub fn class(self) -> usize {
        Waiting(self.waiting).class()
    }
}

/// How often a block has been used, as far as it is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uses(pub(crate) u32);

/// The tags of blocks in a row, in the order of their ids, which have some bits alike.
pub(crate) struct TagRow<'a> {
    tags: &'a mut [u32],
    /// Where any of them differs from the first.
    differing: u32,
}

impl<'a> TagRow<'a> {
    /// None if not all have these bits of a mask.
    #[inline]
    pub fn of(tags: &'a mut [u32], mask: u32, bits: u32) -> Option<Self> {
        let [first, .., last] = *tags else { return None };
        if (first & mask ^ bits) | (last & mask ^ bits) != 0 {
            return None;
        }
        let (parts, rest) = tags.as_chunks::<PART>();
        let differing = parts
            .iter()
            .fold(0, |any, part| any | part.iter().fold(0, |any, tag| any | tag ^ first));
        let differing = rest.iter().fold(differing, |any, tag| any | tag ^ first);
        (differing & mask == 0).then_some(Self { tags, differing })
    }

    /// As [`super::block_metas::Tags::wait_alike`], of each; how many are watched.
    #[inline]
    pub fn wait(&mut self, stamp: Stamp) -> usize {
        let fields = bit::PLACE | bit::EPOCH;
        self.change(fields, |tag| tag & !fields | stamp.place);
        self.num_watched()
    }

    /// As [`super::block_metas::Tags::hit`], of each, which leaves the list that it is in; how many are
    /// watched.
    #[inline]
    pub fn hit(&mut self) -> usize {
        self.change(bit::USES | bit::GRADE | bit::PLACE | bit::HIT, |tag| used(tag) & !bit::PLACE);
        self.num_watched()
    }

    /// As [`super::block_metas::Tags::leave`], of each; how many are watched.
    #[inline]
    pub fn leave(&mut self) -> usize {
        self.change(bit::PLACE, |tag| tag & !bit::PLACE);
        self.num_watched()
    }

    /// Changes fields of all in a way that depends on nothing but these fields.
    #[inline]
    fn change(&mut self, fields: u32, change: impl Fn(u32) -> u32) {
        if self.differing & fields != 0 {
            return self.tags.iter_mut().for_each(|tag| *tag = change(*tag));
        }
        // Each field has one value in all, so that nothing is carried over to the next.
        let difference = change(self.tags[0]).wrapping_sub(self.tags[0]);
        let (parts, rest) = self.tags.as_chunks_mut::<PART>();
        let tags = parts.iter_mut().flatten().chain(rest);
        tags.for_each(|tag| *tag = tag.wrapping_add(difference));
    }

    fn num_watched(&self) -> usize {
        let is_watched = |tag: u32| (tag >> bit::WATCHED_SHIFT & 1) as usize;
        match self.differing & bit::WATCHED {
            0 => is_watched(self.tags[0]) * self.tags.len(),
            _ => self.tags.iter().map(|&tag| is_watched(tag)).sum(),
        }
    }
}

/// Tags that are looked at side by side.
const PART: usize = 32;

/// The bits of a block that is hit: one more use, the best grade.
#[inline]
pub(crate) fn used(was: u32) -> u32 {
    let next = was.wrapping_add(1);
    let uses = if next & bit::USES == 0 { was } else { next };
    uses & !bit::GRADE | bit::HIT
}

/// How a free block waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting(u32);

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
        Grade::new(((self.0 & bit::GRADE) >> bit::GRADE_SHIFT) as usize)
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
pub(crate) const CLASSES: usize = 4;
