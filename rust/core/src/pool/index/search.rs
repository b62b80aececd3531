//! Searches the blocks of a key and the keys of a block.

use super::aliases::AliasKeys;
use super::{Entry, HashTable, Home, PrefixIndex};
use crate::block::{BlockHash, BlockId, CacheKey, GroupId};
use crate::pool::blocks::Blocks;

impl PrefixIndex {
    /// Returns the block that serves a key.
    #[inline]
    pub(crate) fn find(&self, blocks: &Blocks, key: &CacheKey) -> Option<BlockId> {
        Some(self.alias_keys.block_of(self.find_entry(blocks, key)?))
    }

    #[inline]
    fn find_entry(&self, blocks: &Blocks, key: &CacheKey) -> Option<Entry> {
        if !self.layout.has_group(key.group) {
            return None;
        }
        let fingerprint = self.layout.fingerprint_of(key);
        self.table.find(fingerprint, |entry| entry_has(blocks, &self.alias_keys, entry, key))
    }

    /// Returns the blocks that have a key, in the order in which they got it.
    pub fn blocks_of(&self, blocks: &Blocks, key: &CacheKey) -> Vec<BlockId> {
        let first = self.find_entry(blocks, key);
        let entries = first.into_iter().flat_map(|first| self.table.entries_of(first));
        entries.map(|entry| self.alias_keys.block_of(entry)).collect()
    }

    /// Returns every key, in no particular order.
    pub fn keys<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = CacheKey> + 'a {
        let entries = self.table.first_entries();
        entries.map(|entry| entry_key(blocks, &self.alias_keys, entry))
    }

    /// Returns every key of a block. The block's own hash comes first.
    pub(crate) fn keys_of(
        &self,
        blocks: &Blocks,
        block: BlockId,
    ) -> impl Iterator<Item = CacheKey> + '_ {
        let aliases = blocks.has_alias_keys(block).then(|| self.alias_keys.of(block));
        blocks.key(block).into_iter().chain(aliases.into_iter().flatten())
    }

    /// Returns whether a block has a key as its own hash or as an alias.
    pub fn has_key(&self, blocks: &Blocks, block: BlockId, key: &CacheKey) -> bool {
        blocks.has_key(block, key)
            || blocks.has_alias_keys(block) && self.alias_keys.of(block).any(|alias| alias == *key)
    }

    /// Reads the memory that a look-up of these hashes in a group will read, so that the waits for
    /// memory overlap.
    pub(crate) fn prefetch(&self, blocks: &Blocks, group: GroupId, hashes: &[BlockHash]) {
        let mut homes = [Home::default(); HashTable::BATCH];
        for batch in hashes.chunks(HashTable::BATCH) {
            let homes = &mut homes[..batch.len()];
            for (home, hash) in homes.iter_mut().zip(batch) {
                *home = self.table.home(self.layout.fingerprint(hash, group));
            }
            self.table.prefetch(homes.iter().copied());
            blocks.prefetch_keys(homes.iter().map(|&home| self.table.home_entry(home)));
        }
    }
}

/// Returns whether an entry has this key.
#[inline]
pub(super) fn entry_has(
    blocks: &Blocks,
    alias_keys: &AliasKeys,
    entry: Entry,
    key: &CacheKey,
) -> bool {
    match AliasKeys::is_alias(entry) {
        true => alias_keys.key(entry) == *key,
        false => blocks.has_key(entry, key),
    }
}

/// Returns the key of an entry.
pub(super) fn entry_key(blocks: &Blocks, alias_keys: &AliasKeys, entry: Entry) -> CacheKey {
    match AliasKeys::is_alias(entry) {
        true => alias_keys.key(entry),
        false => blocks.last_key(entry),
    }
}
