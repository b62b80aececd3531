//! The adaptive policy's metadata of a block, in 32 bits: its number of uses, its value and flags,
//! its place while it is free and cached, and the epoch in which it became free.

use bytemuck::Zeroable;

use super::nearness::Nearness;
use super::tuning::{LOWEST_PROTECTED_VALUE, VALUE_LEVELS};
use super::value::ValueLevel;

/// The properties of a block when it becomes cached.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockClass {
    /// The value of the block.
    pub value: ValueLevel,
    /// Whether the block is part of a tail. A tail can serve only the end of a hit.
    pub is_tail: bool,
    /// Whether the block is a state. vLLM's own policy caches as many states as this policy.
    pub is_state: bool,
    /// Whether the shadow caches may sample the block.
    pub is_sampleable: bool,
    /// Whether the block holds generated tokens.
    pub is_generated: bool,
}

/// The place of a free cached block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In no list of this policy: the block is in use, or in the free queue.
    Elsewhere,
    /// In one of the ranked lists.
    Ranked,
    /// Among the protected tails.
    Protected,
    /// In the list of its priority.
    PriorityList,
}

pub(super) mod bit {
    use super::{LOWEST_PROTECTED_VALUE, VALUE_LEVELS};

    pub(crate) const USES: u32 = 0xf;
    pub(crate) const VALUE_SHIFT: u32 = 4;
    /// The number of halvings that the value is above no value. It is 0 in a block that never had a value.
    pub(crate) const VALUE: u32 = 0x7 << VALUE_SHIFT;
    const _: () = assert!(VALUE >> VALUE_SHIFT == VALUE_LEVELS as u32);
    /// The bits that all values from [`LOWEST_PROTECTED_VALUE`] on have.
    pub(crate) const PROTECTED_VALUE: u32 =
        VALUE & !((LOWEST_PROTECTED_VALUE as u32) << VALUE_SHIFT);
    const _: () = assert!((LOWEST_PROTECTED_VALUE + 1).is_power_of_two());
    pub(crate) const TAIL: u32 = 1 << 7;
    pub(crate) const GENERATED: u32 = 1 << 8;
    pub(crate) const RANKED: u32 = 1 << 9;
    pub(crate) const PROTECTED: u32 = 1 << 10;
    pub(crate) const SAMPLED: u32 = 1 << 11;
    pub(crate) const HAS_PRIORITY: u32 = 1 << 12;
    pub(crate) const PRIORITY_LIST: u32 = 1 << 13;
    /// The block was hit since its last second chance.
    pub(crate) const HIT_SINCE: u32 = 1 << 14;
    pub(crate) const DURABLE: u32 = 1 << 15;
    /// The same bit in a full block: requests of several sessions have used it.
    pub(crate) const SHARED: u32 = DURABLE;
    /// The bits that earn a tail a second chance.
    pub(crate) const SECOND_CHANCE: u32 = HIT_SINCE | DURABLE;
    pub(crate) const NEARNESS_SHIFT: u32 = 16;
    pub(crate) const EPOCH_SHIFT: u32 = 18;
    pub(crate) const EPOCH: u32 = 0x3fff << EPOCH_SHIFT;
    pub(crate) const PLACE: u32 = RANKED | PROTECTED | PRIORITY_LIST;
    /// The bits that decide which list a free block enters.
    pub(crate) const LIST_KEY: u32 = USES | VALUE | TAIL | HAS_PRIORITY;
}

/// The metadata of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable)]
#[repr(transparent)]
pub struct BlockMeta(pub(super) u32);

impl BlockMeta {
    /// Returns the metadata of a block that becomes cached and is used for the first time.
    pub(super) fn first(class: BlockClass) -> Self {
        let flag = |is_set: bool, bit: u32| u32::from(is_set) * bit;
        let flags = flag(class.is_tail, bit::TAIL) | flag(class.is_generated, bit::GENERATED);
        Self(1 | flags).with_value(class.value).with_durable(class.value.is_durable())
    }

    /// Returns the frequency class.
    pub(super) fn class(self) -> usize {
        match self.0 & bit::USES {
            0 | 1 => 0,
            2 | 3 => 1,
            4..=7 => 2,
            _ => 3,
        }
    }

    pub(super) fn value(self) -> ValueLevel {
        let above_none = (self.0 & bit::VALUE) >> bit::VALUE_SHIFT;
        ValueLevel::new(VALUE_LEVELS - above_none as usize)
    }

    /// Returns whether the block has no value.
    #[inline]
    pub(super) fn is_worthless(self) -> bool {
        self.0 & bit::VALUE == 0
    }

    /// Returns whether the block is a tail that is protected while its request runs: see
    /// [`LOWEST_PROTECTED_VALUE`].
    #[inline]
    pub fn is_protectable(self) -> bool {
        const PROTECTABLE: u32 = bit::TAIL | bit::PROTECTED_VALUE;
        self.0 & PROTECTABLE == PROTECTABLE
    }

    #[inline]
    pub(super) fn is_sampled(self) -> bool {
        self.0 & bit::SAMPLED != 0
    }

    pub(super) fn has_priority(self) -> bool {
        self.0 & bit::HAS_PRIORITY != 0
    }

    /// Returns 1 if the block holds generated tokens and is not a tail, else 0.
    #[inline]
    pub(super) fn num_answers(self) -> usize {
        usize::from(self.0 & (bit::GENERATED | bit::TAIL) == bit::GENERATED)
    }

    pub(super) fn is_tail(self) -> bool {
        self.0 & bit::TAIL != 0
    }

    /// Returns whether the block holds generated tokens.
    #[inline]
    pub fn is_generated(self) -> bool {
        self.0 & bit::GENERATED != 0
    }

    /// Returns whether only the request that computed the block has used it.
    pub fn is_used_once(self) -> bool {
        self.class() == 0
    }

    /// Returns whether one or two other requests used the block in addition to the request that
    /// computed it.
    pub(super) fn has_two_or_three_uses(self) -> bool {
        self.class() == 1
    }

    /// Returns whether the block holds generated tokens and only the request that generated them
    /// has used it. All other blocks are part of a prompt.
    #[inline]
    pub fn is_unused_answer(self) -> bool {
        self.0 & (bit::GENERATED | bit::USES) == bit::GENERATED | 1
    }

    /// Returns whether a full-attention block lies near the end of a prompt or in an answer.
    pub fn is_end(self) -> bool {
        self.is_generated() || self.nearness().step().is_some()
    }

    pub(super) fn is_durable(self) -> bool {
        self.0 & bit::DURABLE != 0
    }

    /// Returns whether requests of several sessions have used a full block.
    pub(crate) fn is_shared(self) -> bool {
        self.0 & (bit::SHARED | bit::TAIL) == bit::SHARED
    }

    /// Returns whether the block may get a second chance. It has to be a tail worth protection.
    /// Also, its value has to last, or a request has to have resumed at it since its last second
    /// chance. If no request resumed at the tail although its prefix was used, hits end elsewhere.
    #[inline]
    pub(super) fn has_second_chance(self) -> bool {
        self.0 & bit::SECOND_CHANCE != 0 && self.is_protectable()
    }

    /// Returns bits that rule out a second chance: no block with the same values of these bits has
    /// one. Returns `None` if this block has a second chance.
    #[inline]
    pub(super) fn bits_against_second_chance(self) -> Option<u32> {
        match self.0 {
            meta if meta & bit::TAIL == 0 => Some(bit::TAIL),
            meta if meta & bit::SECOND_CHANCE == 0 => Some(bit::SECOND_CHANCE),
            _ if !self.is_protectable() => Some(bit::PROTECTED_VALUE),
            _ => None,
        }
    }

    /// Returns how near the end of its prompt a full block lies.
    pub fn nearness(self) -> Nearness {
        Nearness::from_bits(self.0 >> bit::NEARNESS_SHIFT)
    }

    /// Returns the epoch in which the block last became free.
    pub(super) fn epoch(self) -> Epoch {
        Epoch(self.0 >> bit::EPOCH_SHIFT)
    }

    pub(super) fn place(self) -> Place {
        match self.0 & bit::PLACE {
            bit::RANKED => Place::Ranked,
            bit::PROTECTED => Place::Protected,
            bit::PRIORITY_LIST => Place::PriorityList,
            _ => Place::Elsewhere,
        }
    }
}

/// Changes of a block's metadata.
impl BlockMeta {
    /// Returns the metadata after a hit, which counts one more use. A tail that serves a hit gets
    /// the value of the full blocks of the hit.
    #[inline]
    pub(super) fn hit(self) -> Self {
        let next = self.0.wrapping_add(1);
        let uses = if next & bit::USES == 0 { self.0 } else { next };
        Self(uses | bit::VALUE | bit::HIT_SINCE)
    }

    /// Returns the metadata after the block has left its place.
    #[inline]
    pub(super) fn removed(self) -> Self {
        Self(self.0 & !bit::PLACE)
    }

    #[inline]
    pub(super) fn evicted(self) -> Self {
        Self(self.0 & !(bit::PLACE | bit::VALUE))
    }

    /// Returns the metadata after the block has entered a list that [`TargetList::accepts`] it.
    #[inline]
    pub(super) fn entered(self, list: TargetList) -> Self {
        Self(self.0 & !(bit::PLACE | bit::EPOCH) | list.place_and_epoch)
    }

    /// Returns the metadata after the block has entered the list of its priority.
    pub(super) fn entered_priority_list(self, epoch: Epoch) -> Self {
        Self(self.0 & !(bit::PLACE | bit::EPOCH) | bit::PRIORITY_LIST | epoch.bits())
    }

    /// Returns the metadata after the block has joined the protected tails.
    pub(super) fn protected(self) -> Self {
        Self(self.0 & !bit::PLACE | bit::PROTECTED)
    }

    pub(super) fn with_value(self, value: ValueLevel) -> Self {
        let above_none = VALUE_LEVELS - value.halvings();
        Self(self.0 & !bit::VALUE | (above_none as u32) << bit::VALUE_SHIFT)
    }

    pub(super) fn with_durable(self, is_durable: bool) -> Self {
        self.with_flag(bit::DURABLE, is_durable)
    }

    pub(super) fn with_shared(self) -> Self {
        self.with_flag(bit::SHARED, true)
    }

    pub(super) fn with_priority(self, has_priority: bool) -> Self {
        self.with_flag(bit::HAS_PRIORITY, has_priority)
    }

    #[inline]
    fn with_flag(self, flag: u32, is_set: bool) -> Self {
        if is_set { Self(self.0 | flag) } else { Self(self.0 & !flag) }
    }

    /// Returns the metadata with at least as many uses as another block has.
    #[inline]
    pub(super) fn with_uses_of(self, other: Self) -> Self {
        let uses = (self.0 & bit::USES).max(other.0 & bit::USES);
        Self(self.0 & !bit::USES | uses)
    }

    /// Returns the metadata of a tail at which a sequence ends. The tail gets at least the uses of
    /// a block of its prefix. A tail in the prompt keeps its value if it is higher than the value
    /// of the end.
    #[inline]
    pub(super) fn end_of_sequence(self, prefix: Self, value: ValueLevel) -> Self {
        let value = if self.is_unused_answer() { value } else { value.max(self.value()) };
        self.with_uses_of(prefix).with_value(value)
    }

    /// Returns the metadata with the nearness of a full block that has just become cached to the
    /// end of its prompt.
    #[inline]
    pub(super) fn with_nearness(self, nearness: Nearness) -> Self {
        Self(self.0 | nearness.bits() << bit::NEARNESS_SHIFT)
    }

    /// Returns the metadata after a second chance. The block gets another one only if a request
    /// resumes there again.
    pub(super) fn used_second_chance(self) -> Self {
        Self(self.0 & !bit::HIT_SINCE)
    }
}

/// An epoch, modulo 2^14.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u32);

impl Epoch {
    const MASK: u32 = bit::EPOCH >> bit::EPOCH_SHIFT;

    pub(super) fn new(n: usize) -> Self {
        Self(n as u32 & Self::MASK)
    }

    /// Returns the number of epochs between an earlier epoch and this one.
    pub(super) fn age(self, earlier: Self) -> usize {
        (self.0.wrapping_sub(earlier.0) & Self::MASK) as usize
    }

    /// Returns the epoch `age` epochs before this one.
    pub(super) fn before(self, age: usize) -> Self {
        Self::new((self.0 as usize).wrapping_sub(age))
    }

    fn bits(self) -> u32 {
        self.0 << bit::EPOCH_SHIFT
    }
}

/// The ranked list that blocks enter when they are released one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetList {
    /// The bits that all blocks of the list have in common.
    pub mask: u32,
    pub bits: u32,
    place_and_epoch: u32,
}

impl TargetList {
    /// A list that accepts no block.
    pub(super) const NONE: Self = Self { mask: 0, bits: u32::MAX, place_and_epoch: 0 };

    /// Creates the target list for a block and an epoch. Tails enter the same list as full blocks
    /// unless `are_tails_apart`, since some tails may have to be protected.
    pub(super) fn new(meta: BlockMeta, epoch: Epoch, are_tails_apart: bool) -> Self {
        let mask = if are_tails_apart { bit::LIST_KEY } else { bit::LIST_KEY & !bit::TAIL };
        Self { mask, bits: meta.0 & mask, place_and_epoch: bit::RANKED | epoch.bits() }
    }

    #[inline]
    pub(super) fn accepts(self, meta: BlockMeta) -> bool {
        meta.0 & self.mask == self.bits
    }

    /// Returns the frequency class of the list.
    pub(super) fn class(self) -> usize {
        BlockMeta(self.bits).class()
    }
}
