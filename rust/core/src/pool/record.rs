//! The record of each block, word by word.

/// What is known of a block and used together: it lies on one cache line.
pub type Record = [u32; 4];

/// Words of a record.
pub mod word {
    /// Distance to the next block in the queue: see [`super::to_next`].
    pub const NEXT: usize = 0;
    /// Distance to the block before: see [`super::to_prev`].
    pub const PREV: usize = 1;
    /// References and flags.
    pub const USE: usize = 2;
    /// Fingerprint of the key that the block has or had last: an eviction needs no more of it.
    pub const FINGERPRINT: usize = 3;
}

/// Flags of a block, in the bits above its references.
pub mod flag {
    /// The block names a segment of a chain.
    pub const LINKED: u32 = 1 << 27;
    /// The block is in the prefix cache under its own hash.
    pub const CACHED: u32 = 1 << 28;
    /// An earlier block with the same key is served instead of this one.
    pub const DUPLICATE: u32 = 1 << 29;
    /// The block goes to the pinned tier when it loses its last reference.
    pub const PINNED: u32 = 1 << 30;
    /// The block has further keys beside its own hash.
    pub const FURTHER_KEYS: u32 = 1 << 31;
}

/// The most references that a block can have.
pub const MAX_REFERENCES: u32 = flag::LINKED - 1;

/// All flags but one that makes no difference to a block that is taken or given back.
pub const KINDS: u32 = !MAX_REFERENCES & !flag::LINKED;

/// What stands for the next block in a queue if it is the one with the next id, or with the id
/// before.
pub const UP: u32 = 0;
pub const DOWN: u32 = u32::MAX - 1;

/// The block behind one in its list.
#[inline]
pub fn next_of(id: u32, record: &Record) -> u32 {
    record[word::NEXT].wrapping_add(id).wrapping_add(1)
}

/// The block before one in its list.
#[inline]
pub fn prev_of(id: u32, record: &Record) -> u32 {
    record[word::PREV].wrapping_add(id).wrapping_sub(1)
}

/// What leads from a block to the one behind it. Links are differences, so that zeroed memory
/// already is the queue of a fresh pool, in order of block id.
#[inline]
pub fn to_next(id: u32, next: u32) -> u32 {
    next.wrapping_sub(id).wrapping_sub(1)
}

/// What leads from a block to the one before it.
#[inline]
pub fn to_prev(id: u32, prev: u32) -> u32 {
    prev.wrapping_sub(id).wrapping_add(1)
}

/// Lets one block stand behind another.
#[inline]
pub fn join(records: &mut [Record], left: u32, right: u32) {
    records[right as usize][word::PREV] = to_prev(right, left);
    records[left as usize][word::NEXT] = to_next(left, right);
}
