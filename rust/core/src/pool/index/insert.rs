//! Adds keys to the index when blocks are cached.

use std::ops::Range;

use super::search::{entry_has, entry_key};
use super::{Entry, HashTable, Home, PrefixIndex};
use crate::block::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};
use crate::pool::blocks::{Blocks, Fingerprint, FullBlocks, NO_SEGMENT};

impl PrefixIndex {
    /// Caches full blocks of a group under their hashes, up to [`HashTable::BATCH`] of them. The
    /// hashes replace the keys that the blocks had before. Null blocks are skipped.
    ///
    /// If a block becomes a duplicate, calls `on_duplicate` with the block that serves the key and
    /// with the duplicate. Returns whether no block became a duplicate.
    pub(crate) fn cache_batch(
        &mut self,
        blocks: &mut Blocks,
        batch: &FullBlocks<'_>,
        mut on_duplicate: impl FnMut(&mut Blocks, BlockId, BlockId),
    ) -> bool {
        let mut homes = [Home::default(); HashTable::BATCH];
        let homes = &mut homes[..batch.blocks.len()];
        self.find_homes(batch, homes);
        // The blocks before `marked` that are not cached yet are already marked as cached.
        let (mut next, mut marked) = (0, 0);
        let mut all_serve = true;
        loop {
            if next >= marked {
                marked = next + blocks.mark_cached(&batch.blocks[next..], batch.segment);
            }
            next += self.cache_marked(blocks, batch, homes, next..marked);
            let Some(&block) = batch.blocks.get(next) else { return all_serve };
            if next < marked {
                blocks.clear_key(block);
            }
            if block != NULL_BLOCK
                && let Some(first) = self.cache_one(blocks, batch, next, homes)
            {
                on_duplicate(blocks, first, block);
                all_serve = false;
            }
            next += 1;
        }
    }

    /// Finds the places of a batch's keys in the table and prefetches them.
    fn find_homes(&mut self, batch: &FullBlocks<'_>, homes: &mut [Home]) {
        let Self { hash_cache, table, layout, .. } = self;
        if let Some(bits) = hash_cache.of(batch) {
            for (home, &bits) in homes.iter_mut().zip(bits) {
                *home = table.home(layout.fingerprint_of_bits(bits, batch.group));
            }
        } else {
            match batch.per_block {
                1 => self.find_each_home(batch.group, batch.hashes.iter(), homes),
                n => self.find_each_home(batch.group, batch.hashes.iter().step_by(n), homes),
            }
        }
        self.table.prefetch(homes.iter().copied());
    }

    #[inline(always)]
    fn find_each_home<'a>(
        &self,
        group: GroupId,
        hashes: impl Iterator<Item = &'a BlockHash>,
        homes: &mut [Home],
    ) {
        for (home, hash) in homes.iter_mut().zip(hashes) {
            *home = self.table.home(self.layout.fingerprint(hash, group));
        }
    }

    /// Caches marked blocks of a batch. Stops at the first block for which it is not enough to
    /// write its key. Returns the number of cached blocks.
    #[inline(always)]
    fn cache_marked(
        &mut self,
        blocks: &mut Blocks,
        batch: &FullBlocks<'_>,
        homes: &[Home],
        marked: Range<usize>,
    ) -> usize {
        let (ids, homes) = (&batch.blocks[marked.clone()], &homes[marked.clone()]);
        let num_done = self.table.insert_each(homes, ids);
        let fingerprints = homes.iter().map(|home| home.fingerprint);
        blocks.write_keys(&batch.since(marked.start), &ids[..num_done], fingerprints);
        self.num_cached += num_done;
        self.version += num_done as u64;
        num_done
    }

    /// Caches one block of a batch. Returns the block that serves the key, if it is another one.
    fn cache_one(
        &mut self,
        blocks: &mut Blocks,
        batch: &FullBlocks<'_>,
        i: usize,
        homes: &mut [Home],
    ) -> Option<BlockId> {
        let num_lines = self.table.num_lines();
        let block = batch.blocks[i];
        if blocks.is_cached(block) {
            self.remove_keys(blocks, block);
        }
        let fingerprint = homes[i].fingerprint;
        blocks.set_key(block, batch.hash(i), fingerprint, batch.num_tokens(i), batch.segment);
        let first = self.insert_own_key(blocks, block);
        if self.table.num_lines() != num_lines {
            self.find_homes(batch, homes);
        }
        first
    }

    /// Adds a block's own key to the table. Returns the block that serves the key, if it is another
    /// one.
    fn insert_own_key(&mut self, blocks: &mut Blocks, block: BlockId) -> Option<BlockId> {
        self.num_cached += 1;
        self.version += 1;
        let (fingerprint, key) = (blocks.fingerprint(block), blocks.last_key(block));
        let first = self.insert_entry(blocks, block, fingerprint, &key)?;
        blocks.set_duplicate(block, true);
        Some(self.alias_keys.block_of(first))
    }

    fn insert_entry(
        &mut self,
        blocks: &Blocks,
        entry: Entry,
        fingerprint: Fingerprint,
        key: &CacheKey,
    ) -> Option<Entry> {
        let Self { table, alias_keys, layout, .. } = self;
        table.insert(
            table.home(fingerprint),
            entry,
            |other| entry_has(blocks, alias_keys, other, key),
            |other| layout.fingerprint_of(&entry_key(blocks, alias_keys, other)),
        )
    }

    /// Caches a block under a key. The key becomes the block's own if it has none, otherwise an
    /// alias. `num_tokens` is the length of the key's prefix. Returns whether the key became the
    /// block's own.
    pub(crate) fn insert(
        &mut self,
        blocks: &mut Blocks,
        block: BlockId,
        key: CacheKey,
        num_tokens: usize,
    ) -> bool {
        let is_own = !blocks.is_cached(block);
        let fingerprint = self.layout.fingerprint_of(&key);
        if is_own {
            blocks.set_key(block, &key.hash, fingerprint, num_tokens, NO_SEGMENT);
            self.insert_own_key(blocks, block);
        } else if !self.has_key(blocks, block, &key) {
            blocks.set_has_alias_keys(block, true);
            let entry = self.alias_keys.add(block, key);
            self.insert_entry(blocks, entry, fingerprint, &key);
            self.version += 1;
        }
        is_own
    }

    /// Moves every key of a block to another block, which has none. Creates no event.
    pub(crate) fn move_keys(&mut self, blocks: &mut Blocks, from: BlockId, to: BlockId) {
        debug_assert!(!blocks.is_cached(to));
        let num_tokens = blocks.last_hash_num_tokens(from);
        let keys: Vec<_> = self.keys_of(blocks, from).collect();
        self.remove_keys_silently(blocks, from);
        for key in keys {
            self.insert(blocks, to, key, num_tokens);
        }
    }
}
