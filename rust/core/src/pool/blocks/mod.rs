//! Records of all blocks: their references and flags, their neighbours in a list, and the hash
//! under which they are cached. The records do not depend on an eviction policy.
//!
//! Blocks that are allocated one after another mostly have ids that go up or down by one. Such a
//! run of blocks is handled as one if the same must be done to all of its blocks.

mod list;
mod prefetch;
mod record_writer;
mod records;
mod ring;

mod open_ends;

mod list_span;

mod links;
mod run;

mod fingerprint;
mod flags;
mod full_blocks;
pub(crate) mod prefault;

pub(crate) use fingerprint::Fingerprint;
pub use fingerprint::KeyLayout;
pub use flags::MAX_REFERENCES;
pub use full_blocks::FullBlocks;
pub(crate) use links::run_from;
pub(crate) use list::BlockList;
pub(crate) use list_span::ListSpan;
pub(crate) use open_ends::OpenEnds;
pub(crate) use prefetch::PrefetchedParts;
pub(crate) use records::CachedLeft;
pub(crate) use run::IdRun;
pub use run::{Part, Parts};

use flags::flag;
use links::Links;

use crate::block::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};

/// The number of a segment of the prefix trie. It takes two bytes of every block.
pub type SegmentId = u16;

/// The number that means no segment.
pub const NO_SEGMENT: SegmentId = 0;

/// The records of all blocks, including the null block.
#[derive(Clone, Debug)]
pub struct Blocks {
    layout: KeyLayout,
    /// The references and flags of each block.
    usage: Vec<u32>,
    /// The links of each block, and of each sentinel except the null block.
    links: Vec<Links>,
    /// The fingerprint of the key that each block has or had last. An eviction needs no more of the
    /// key.
    fingerprints: Vec<Fingerprint>,
    hash: Vec<[u64; 4]>,
    hash_num_tokens: Vec<u32>,
    /// The segment of each block that is in the prefix trie.
    segments: Vec<SegmentId>,
}

impl Blocks {
    /// Creates blocks without hash or reference. Creates sentinels for `num_lists` lists in
    /// addition to the free queue and the pinned tier.
    pub(crate) fn new(num_blocks: usize, layout: KeyLayout, num_lists: usize) -> Self {
        Self {
            layout,
            usage: prefault::zeros(num_blocks),
            links: prefault::zeros(num_blocks + 1 + num_lists),
            fingerprints: prefault::zeros(num_blocks),
            hash: prefault::zeros_in_order(num_blocks),
            hash_num_tokens: prefault::zeros_in_order(num_blocks),
            segments: prefault::zeros_in_order(num_blocks),
        }
    }

    pub(crate) fn links(&self) -> &[Links] {
        &self.links
    }

    fn usage(&self, id: BlockId) -> u32 {
        self.usage[id as usize]
    }

    fn usage_mut(&mut self, id: BlockId) -> &mut u32 {
        &mut self.usage[id as usize]
    }

    /// Returns the number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.hash.len()
    }

    /// Returns the number of references to a block.
    pub fn ref_count(&self, id: BlockId) -> u32 {
        self.usage(id) & MAX_REFERENCES
    }

    /// Returns whether a block is free. The null block never is.
    pub fn is_free(&self, id: BlockId) -> bool {
        id != NULL_BLOCK && self.ref_count(id) == 0
    }

    /// Returns whether a request can write to a block: the block has one reference and no key.
    pub(crate) fn is_writable(&self, id: BlockId) -> bool {
        id != NULL_BLOCK && self.ref_count(id) == 1 && !self.is_cached(id)
    }

    /// Sets the number of references to a block, up to [`MAX_REFERENCES`].
    pub(crate) fn set_ref_count(&mut self, id: BlockId, count: u32) {
        debug_assert!(count <= MAX_REFERENCES);
        let usage = self.usage_mut(id);
        *usage = *usage & !MAX_REFERENCES | count;
    }

    /// Removes the keys of free blocks and gives each block one reference. Each block must serve
    /// its only key and must not be pinned.
    pub(crate) fn allocate_each(&mut self, blocks: impl Iterator<Item = BlockId>) {
        let usage = &mut self.usage[..];
        blocks.for_each(|block| usage[block as usize] = 1);
    }

    /// Reads the keys of blocks that will be compared soon, so that the waits for memory overlap.
    /// Skips ids after the last block.
    pub(crate) fn prefetch_keys(&self, blocks: impl Iterator<Item = BlockId>) {
        let blocks = blocks.filter(|&id| (id as usize) < self.len());
        let read = |id: BlockId| u64::from(self.usage(id)) ^ self.hash[id as usize][0];
        std::hint::black_box(blocks.fold(0, |seen, id| seen ^ read(id)));
    }

    /// Adds a reference to a block. Returns the new number of references.
    pub(crate) fn add_reference(&mut self, id: BlockId) -> u32 {
        let usage = self.usage_mut(id);
        *usage += 1;
        *usage & MAX_REFERENCES
    }

    /// Removes a reference to a block. Returns whether it was the last one. A number that was set
    /// to 0 by hand stays 0.
    #[inline]
    pub(crate) fn remove_reference(&mut self, id: BlockId) -> bool {
        let usage = self.usage_mut(id);
        let num_references = *usage & MAX_REFERENCES;
        *usage -= u32::from(num_references > 0);
        num_references == 1
    }

    /// Returns a cached block's own key.
    pub fn key(&self, id: BlockId) -> Option<CacheKey> {
        self.is_cached(id).then(|| self.last_key(id))
    }

    /// Returns the own key that a block has, or had last.
    pub(crate) fn last_key(&self, id: BlockId) -> CacheKey {
        let hash = BlockHash(self.hash[id as usize]);
        CacheKey { hash, group: self.layout.group_of(self.fingerprint(id)) }
    }

    /// Returns the group of the own key that a block has, or had last.
    pub(crate) fn group_of(&self, id: BlockId) -> GroupId {
        self.layout.group_of(self.fingerprint(id))
    }

    /// Returns the first word of the hash that a block has, or had last.
    pub(crate) fn name_word(&self, id: BlockId) -> u64 {
        self.hash[id as usize][0]
    }

    /// Returns the fingerprint of the own key that a block has, or had last.
    #[inline]
    pub(crate) fn fingerprint(&self, id: BlockId) -> Fingerprint {
        self.fingerprints[id as usize]
    }

    /// Returns the fingerprints of all blocks.
    #[inline]
    pub(crate) fn fingerprints(&self) -> &[Fingerprint] {
        &self.fingerprints
    }

    /// Returns whether a block is cached under this key as its own key.
    #[inline]
    pub(crate) fn has_key(&self, id: BlockId, key: &CacheKey) -> bool {
        self.is_cached(id)
            && self.layout.group_of(self.fingerprint(id)) == key.group
            && self.hash[id as usize] == key.hash.0
    }

    /// Returns whether a block serves this key as its own key. The id can be after the last block.
    #[inline]
    pub(crate) fn serves(&self, id: BlockId, key: &CacheKey) -> bool {
        (id as usize) < self.len() && !self.is_duplicate(id) && self.has_key(id, key)
    }

    /// Returns the number of tokens that a cached block's own hash covers.
    pub fn hash_num_tokens(&self, id: BlockId) -> Option<usize> {
        self.is_cached(id).then(|| self.hash_num_tokens[id as usize] as usize)
    }

    /// Returns the number of tokens that a block's own hash covers, or covered before the block
    /// lost it.
    pub(crate) fn last_hash_num_tokens(&self, id: BlockId) -> usize {
        self.hash_num_tokens[id as usize] as usize
    }

    fn is_in_trie(&self, id: BlockId) -> bool {
        self.usage(id) & flag::IN_TRIE != 0
    }

    /// Returns the segment of the prefix trie that can have a block.
    pub(crate) fn segment(&self, id: BlockId) -> SegmentId {
        if self.is_in_trie(id) { self.last_segment(id) } else { NO_SEGMENT }
    }

    /// Returns the segment of a block that was in the trie until now. For any other block, the
    /// value has no meaning.
    pub(crate) fn last_segment(&self, id: BlockId) -> SegmentId {
        self.segments[id as usize]
    }

    pub(crate) fn set_segment(&mut self, id: BlockId, segment: SegmentId) {
        self.segments[id as usize] = segment;
        self.set_flag(id, flag::IN_TRIE, segment != NO_SEGMENT);
    }

    /// Sets the own key of a block that is not cached.
    #[inline]
    pub(crate) fn set_key(
        &mut self,
        id: BlockId,
        hash: &BlockHash,
        fingerprint: Fingerprint,
        num_tokens: usize,
        segment: SegmentId,
    ) {
        debug_assert!(!self.is_cached(id));
        *self.usage_mut(id) |= key_flags(segment);
        self.fingerprints[id as usize] = fingerprint;
        self.hash[id as usize] = hash.0;
        self.hash_num_tokens[id as usize] = num_tokens as u32;
        self.segments[id as usize] = segment;
    }

    /// Writes the first keys of a batch, and its segment, to blocks that are already flagged as
    /// cached.
    pub(crate) fn write_keys(
        &mut self,
        batch: &FullBlocks<'_>,
        blocks: &[BlockId],
        fingerprints: impl Iterator<Item = Fingerprint>,
    ) {
        match batch.per_block {
            1 => self.write_each_key(batch, blocks, batch.hashes.iter(), fingerprints),
            n => self.write_each_key(batch, blocks, batch.hashes.iter().step_by(n), fingerprints),
        }
    }

    #[inline(always)]
    fn write_each_key<'a>(
        &mut self,
        batch: &FullBlocks<'_>,
        blocks: &[BlockId],
        hashes: impl Iterator<Item = &'a BlockHash>,
        new_fingerprints: impl Iterator<Item = Fingerprint>,
    ) {
        // All have the same length, so one check of an id is enough.
        let num_blocks = self.hash.len();
        let fingerprints = &mut self.fingerprints[..num_blocks];
        let hash_num_tokens = &mut self.hash_num_tokens[..num_blocks];
        let segments = &mut self.segments[..num_blocks];
        let mut num_tokens = batch.first_num_tokens as u32;
        for ((&block, fingerprint), own) in blocks.iter().zip(new_fingerprints).zip(hashes) {
            self.hash[block as usize] = own.0;
            fingerprints[block as usize] = fingerprint;
            hash_num_tokens[block as usize] = num_tokens;
            if batch.segment != NO_SEGMENT {
                segments[block as usize] = batch.segment;
            }
            num_tokens += batch.block_size as u32;
        }
    }

    /// Returns whether the first two of some blocks are neighbours in a list.
    #[inline]
    pub(crate) fn starts_with_neighbours(&self, blocks: &[BlockId]) -> bool {
        let [first, second, ..] = *blocks else { return false };
        let links = self.links[first as usize];
        links.prev_of(first) == second || links.next_of(first) == second
    }

    /// Removes a block's own hash.
    pub(crate) fn clear_key(&mut self, id: BlockId) {
        *self.usage_mut(id) &= !(flag::CACHED | flag::DUPLICATE | flag::IN_TRIE);
    }

    /// Returns whether a block is cached.
    pub fn is_cached(&self, id: BlockId) -> bool {
        self.usage(id) & flag::CACHED != 0
    }

    /// Returns the blocks of a list that are neither cached nor null.
    pub fn unhashed(&self, ids: &[BlockId]) -> Vec<BlockId> {
        let is_unhashed = |&id: &BlockId| id != NULL_BLOCK && !self.is_cached(id);
        ids.iter().copied().filter(is_unhashed).collect()
    }

    /// Returns whether a block serves its own hash and has no alias key. This holds for nearly all
    /// cached blocks.
    pub(crate) fn has_plain_key(&self, id: BlockId) -> bool {
        let flags = flag::CACHED | flag::DUPLICATE | flag::ALIAS_KEYS;
        self.usage(id) & flags == flag::CACHED
    }

    /// Returns whether another block serves a block's own key.
    pub(crate) fn is_duplicate(&self, id: BlockId) -> bool {
        self.usage(id) & flag::DUPLICATE != 0
    }

    pub(crate) fn set_duplicate(&mut self, id: BlockId, on: bool) {
        self.set_flag(id, flag::DUPLICATE, on);
    }

    /// Returns whether a block is in the pinned tier, or will go there when it becomes free.
    pub fn is_pinned(&self, id: BlockId) -> bool {
        self.usage(id) & flag::PINNED != 0
    }

    pub(crate) fn set_pinned(&mut self, id: BlockId, on: bool) {
        self.set_flag(id, flag::PINNED, on);
    }

    /// Returns whether a block has alias keys in addition to its own key.
    pub(crate) fn has_alias_keys(&self, id: BlockId) -> bool {
        self.usage(id) & flag::ALIAS_KEYS != 0
    }

    pub(crate) fn set_has_alias_keys(&mut self, id: BlockId, on: bool) {
        self.set_flag(id, flag::ALIAS_KEYS, on);
    }

    fn set_flag(&mut self, id: BlockId, bit: u32, on: bool) {
        let usage = self.usage_mut(id);
        *usage = if on { *usage | bit } else { *usage & !bit };
    }
}

/// Returns the flags for a block that gets its own key.
fn key_flags(segment: SegmentId) -> u32 {
    if segment == NO_SEGMENT { flag::CACHED } else { flag::CACHED | flag::IN_TRIE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_block_is_when_a_holder_less_uses_it() {
        let mut states = Blocks::new(3, KeyLayout::new(1), 0);
        states.set_ref_count(1, 2);
        states.set_pinned(1, true);
        assert_eq!([1, 1, 1].map(|block| states.remove_reference(block)), [false, true, false]);
        assert_eq!((states.ref_count(1), states.is_pinned(1)), (0, true));
        states.set_ref_count(2, 1);
        states.set_key(2, &BlockHash([7, 0, 0, 0]), Fingerprint(8), 4, NO_SEGMENT);
        assert!(states.remove_reference(2) && states.is_cached(2));
    }
}
