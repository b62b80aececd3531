//! Checks the invariants of the index.

use super::PrefixIndex;
use super::trie::TrieBlock;
use crate::block::BlockId;
use crate::pool::blocks::Blocks;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl PrefixIndex {
    /// Checks that each key is served by exactly one block, that this block has the key, and that
    /// counts are right.
    pub(crate) fn check(&self, blocks: &Blocks) -> Result<(), String> {
        let mut entries = 0;
        let mut served = 0;
        for first in self.table.first_entries() {
            served += 1;
            for (position, entry) in self.table.entries_of(first).enumerate() {
                entries += 1;
                let block = self.alias_keys.block_of(entry);
                let is_marked = block != entry || blocks.is_duplicate(block) == (position > 0);
                ensure(is_marked, || format!("block {block} is wrongly marked as a duplicate"))?;
            }
        }
        ensure(served == self.table.len(), || "the index counts its keys wrongly".into())?;

        let (mut cached, mut keys, mut with_aliases) = (0, 0, 0);
        for block in 1..blocks.len() as BlockId {
            cached += usize::from(blocks.is_cached(block));
            with_aliases += usize::from(blocks.has_alias_keys(block));
            for key in self.keys_of(blocks, block) {
                keys += 1;
                let found = self.find(blocks, &key);
                let is_found = found.is_some_and(|found| self.has_key(blocks, found, &key));
                ensure(is_found, || format!("a key of block {block} is not found"))?;
                ensure(self.blocks_of(blocks, &key).contains(&block), || {
                    format!("block {block} is not in the line of its key")
                })?;
            }
        }
        ensure(keys == entries, || {
            format!("blocks have {keys} keys, the index {entries} entries")
        })?;
        ensure(cached == self.num_cached, || "cached blocks are counted wrongly".into())?;
        ensure(with_aliases == self.alias_keys.num_blocks(), || "alias keys are left over".into())
    }

    /// Checks that each block in the trie serves its own key at its position.
    pub(crate) fn check_trie(&self, blocks: &Blocks) -> Result<(), String> {
        for (TrieBlock { block, segment }, num_tokens) in self.trie.listed() {
            ensure(blocks.segment(block) == segment, || {
                format!("block {block} does not name segment {segment}, which lists it")
            })?;
            ensure(blocks.hash_num_tokens(block) == Some(num_tokens), || {
                format!("block {block} is listed where {num_tokens} tokens end")
            })?;
            let key = blocks.key(block);
            ensure(key.and_then(|key| self.find(blocks, &key)) == Some(block), || {
                format!("block {block} is listed, but does not serve its key")
            })?;
        }
        match self.trie.broken_segment() {
            None => Ok(()),
            Some(segment) => Err(format!("segment {segment} forgot a child")),
        }
    }
}
