//! The references and flags of a block, in one word.

/// Flags of a block, in the bits above its references.
pub(super) mod flag {
    /// The block names a segment of the prefix trie.
    pub(crate) const IN_TRIE: u32 = 1 << 27;
    /// The block is in the prefix cache under its own hash.
    pub(crate) const CACHED: u32 = 1 << 28;
    /// An earlier block with the same key serves look-ups instead of this one.
    pub(crate) const DUPLICATE: u32 = 1 << 29;
    /// The block goes to the pinned tier when it loses its last reference.
    pub(crate) const PINNED: u32 = 1 << 30;
    /// The block has alias keys.
    pub(crate) const ALIAS_KEYS: u32 = 1 << 31;
}

/// The largest number of references to a block.
pub const MAX_REFERENCES: u32 = flag::IN_TRIE - 1;

/// All flags except `IN_TRIE`, which makes no difference when a block is allocated or released.
pub(super) const FLAGS_BUT_IN_TRIE: u32 = !MAX_REFERENCES & !flag::IN_TRIE;
