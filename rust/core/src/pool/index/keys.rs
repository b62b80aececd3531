//! Which keys find a block: keys enter the index when blocks are cached and leave it when they are
//! reused or evicted.

use std::ops::Range;

use super::aliases::AliasKeys;
use super::full_blocks::FullBlocks;
use super::removals::RemovedKey;
use super::trie::{NO_SEGMENT, SegmentId};
use crate::block::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::pool::block_pool::BlockPool;
use crate::pool::blocks::Blocks;
use crate::pool::event::Event;
use crate::pool::index::{Entry, Fingerprint, HashTable, KeyLayout, Place};

/// What finds the blocks of keys.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub index: &'a HashTable,
    pub alias_keys: &'a AliasKeys,
    pub layout: KeyLayout,
}

impl Keys<'_> {
    /// The block that serves a key: the first inserted of those that have it.
    #[inline]
    pub fn find(self, states: &Blocks, key: &CacheKey) -> Option<BlockId> {
        if !self.layout.has_group(key.group) {
            return None;
        }
        let fingerprint = self.layout.fingerprint_of(key);
        let has_key = |entry| entry_has(states, self.alias_keys, entry, key);
        let entry = self.index.find(fingerprint, has_key)?;
        Some(self.alias_keys.block_of(entry))
    }
}

impl BlockPool {
    /// The block that serves a key: the first inserted of those that have it.
    pub fn find(&self, key: &CacheKey) -> Option<BlockId> {
        let Self { index, alias_keys, layout, blocks, .. } = self;
        Keys { index, alias_keys, layout: *layout }.find(blocks, key)
    }

    /// The blocks that have a key, in the order in which they got it.
    pub fn blocks_of(&self, key: &CacheKey) -> Vec<BlockId> {
        if !self.layout.has_group(key.group) {
            return Vec::new();
        }
        let fingerprint = self.layout.fingerprint_of(key);
        let first = self.index.find(fingerprint, |entry| self.entry_has(entry, key));
        let entries = first.into_iter().flat_map(|first| self.index.entries_of(first));
        entries.map(|entry| self.alias_keys.block_of(entry)).collect()
    }

    /// Every key, in no particular order.
    pub fn keys(&self) -> impl Iterator<Item = CacheKey> + '_ {
        let entries = self.index.first_entries();
        entries.map(|entry| entry_key(&self.blocks, &self.alias_keys, entry))
    }

    /// Reads what a look-up of these hashes in a group will, so that the waits for memory overlap.
    pub fn prefetch(&self, group: GroupId, hashes: &[BlockHash]) {
        let mut places = [Place::default(); HashTable::BATCH];
        for batch in hashes.chunks(HashTable::BATCH) {
            let places = &mut places[..batch.len()];
            for (place, hash) in places.iter_mut().zip(batch) {
                *place = self.index.place(self.layout.fingerprint(hash, group));
            }
            self.index.prefetch(places.iter().copied());
            self.blocks.prefetch_keys(places.iter().map(|&place| self.index.likely(place)));
        }
    }

    /// What is cached from now on until this is ended is of one request, in several groups.
    pub fn keep_hash_cache(&mut self, on: bool) {
        self.hash_cache.keep(on);
    }

    pub(crate) fn entry_has(&self, entry: Entry, key: &CacheKey) -> bool {
        entry_has(&self.blocks, &self.alias_keys, entry, key)
    }

    /// Every key of a block, its own hash first.
    pub fn keys_of(&self, block: BlockId) -> impl Iterator<Item = CacheKey> + '_ {
        let aliases = self.blocks.has_alias_keys(block).then(|| self.alias_keys.of(block));
        self.blocks.key(block).into_iter().chain(aliases.into_iter().flatten())
    }

    /// Whether the block has this key, as its own hash or beside it.
    pub fn has_key(&self, block: BlockId, key: &CacheKey) -> bool {
        self.blocks.has_key(block, key)
            || self.blocks.has_alias_keys(block) && self.alias_keys.of(block).any(|k| k == *key)
    }

    /// As [`Self::insert_key`], for a key from outside whose `num_tokens` may be wrong.
    pub fn insert_foreign_key(
        &mut self,
        block: BlockId,
        key: CacheKey,
        num_tokens: usize,
    ) -> Result<()> {
        if !self.layout.has_group(key.group) {
            return Err(Error::Block(format!(
                "a block cannot be cached in group {}, which this pool does not have",
                key.group
            )));
        }
        self.removals.give_up();
        self.insert_key(block, key, num_tokens);
        Ok(())
    }

    /// Makes full blocks of a group reachable under their hashes, up to [`HashTable::BATCH`] of
    /// them; what they were cached under before is forgotten. Null blocks are passed over. Whether
    /// each serves its key: none is a duplicate.
    #[inline(never)]
    pub fn cache_batch(&mut self, batch: &FullBlocks<'_>) -> bool {
        let mut places = [Place::default(); HashTable::BATCH];
        let places = &mut places[..batch.blocks.len()];
        self.find_places(batch, places);
        // Blocks before `marked` that are not cached yet are marked as if they were.
        let (mut next, mut marked) = (0, 0);
        let mut all_serve = true;
        loop {
            if next >= marked {
                marked = next + self.blocks.mark_cached(&batch.blocks[next..], batch.segment);
            }
            next += self.cache_marked(batch, places, next..marked);
            let Some(&block) = batch.blocks.get(next) else { break };
            if next < marked {
                self.blocks.clear_key(block);
            }
            if block != NULL_BLOCK {
                all_serve &= self.cache_with_care(batch, next, places);
            }
            next += 1;
        }
        self.eviction.cached(&mut self.blocks, batch);
        all_serve
    }

    /// Finds where the keys of a batch go, and reads what is there, so that the waits for memory
    /// overlap.
    fn find_places(&mut self, batch: &FullBlocks<'_>, places: &mut [Place]) {
        let Self { hash_cache, index, layout, .. } = self;
        if let Some(bits) = hash_cache.of(batch) {
            for (place, &bits) in places.iter_mut().zip(bits) {
                *place = index.place(layout.fingerprint_of_bits(bits, batch.group));
            }
        } else {
            match batch.per_block {
                1 => self.find_each_place(batch.group, batch.hashes.iter(), places),
                n => self.find_each_place(batch.group, batch.hashes.iter().step_by(n), places),
            }
        }
        self.index.prefetch(places.iter().copied());
    }

    #[inline(always)]
    fn find_each_place<'a>(
        &self,
        group: GroupId,
        hashes: impl Iterator<Item = &'a BlockHash>,
        places: &mut [Place],
    ) {
        for (place, hash) in places.iter_mut().zip(hashes) {
            *place = self.index.place(self.layout.fingerprint(hash, group));
        }
    }

    /// Caches blocks of a batch that are marked, up to one that takes more than writing down its
    /// key; how many.
    #[inline(always)]
    fn cache_marked(
        &mut self,
        batch: &FullBlocks<'_>,
        places: &[Place],
        marked: Range<usize>,
    ) -> usize {
        let (blocks, places) = (&batch.blocks[marked.clone()], &places[marked.clone()]);
        let num_done = self.index.simple_changes().insert_each(places, blocks);
        self.blocks.write_keys(&batch.since(marked.start), &blocks[..num_done], places);
        self.num_cached += num_done;
        self.version += num_done as u64;
        num_done
    }

    /// Caches one block of a batch; whether it serves its key.
    fn cache_with_care(&mut self, batch: &FullBlocks<'_>, i: usize, places: &mut [Place]) -> bool {
        let size = self.index.num_lines();
        let block = batch.blocks[i];
        let position = (batch.num_tokens(i), batch.segment);
        let first = self.cache_full_block(block, batch.hash(i), places[i].fingerprint, position);
        if self.index.num_lines() != size {
            self.find_places(batch, places);
        }
        if let Some(first) = first {
            self.eviction.replaced(&mut self.blocks, first, block);
        }
        first.is_none()
    }

    /// Returns the block that serves the key, if another one does.
    fn cache_full_block(
        &mut self,
        block: BlockId,
        hash: &BlockHash,
        fingerprint: Fingerprint,
        (num_tokens, segment): (usize, SegmentId),
    ) -> Option<BlockId> {
        if !self.blocks.set_key(block, hash, fingerprint, num_tokens, segment) {
            self.remove_keys(block);
            self.blocks.set_key(block, hash, fingerprint, num_tokens, segment);
        }
        self.num_cached += 1;
        self.version += 1;
        let (states, aliases, layout) = (&self.blocks, &self.alias_keys, self.layout);
        let first = self.index.insert(
            self.index.place(fingerprint),
            block,
            |other| entry_has(states, aliases, other, &states.last_key(block)),
            |other| layout.fingerprint_of(&entry_key(states, aliases, other)),
        );
        first.map(|first| {
            self.blocks.set_duplicate(block, true);
            self.alias_keys.block_of(first)
        })
    }

    /// Makes a block reachable under a key: as its own hash if it has none, beside it otherwise.
    /// `num_tokens` is the length of the prefix that the key stands for.
    pub fn insert_key(&mut self, block: BlockId, key: CacheKey, num_tokens: usize) {
        if !self.blocks.is_cached(block) {
            let fingerprint = self.layout.fingerprint_of(&key);
            self.cache_full_block(block, &key.hash, fingerprint, (num_tokens, NO_SEGMENT));
            self.eviction.cached_alone(&mut self.blocks, block, &key);
        } else if !self.has_key(block, &key) {
            self.blocks.set_has_alias_keys(block, true);
            let entry = self.alias_keys.add(block, key);
            self.index_alias_key(entry, &key);
            self.version += 1;
        }
    }

    fn index_alias_key(&mut self, entry: Entry, key: &CacheKey) {
        let (states, aliases, layout) = (&self.blocks, &self.alias_keys, self.layout);
        self.index.insert(
            self.index.place(layout.fingerprint_of(key)),
            entry,
            |other| entry_has(states, aliases, other, key),
            |other| layout.fingerprint_of(&entry_key(states, aliases, other)),
        );
    }

    /// Lets another block, which has no key, serve every key of a block from now on. Nobody is told.
    pub fn move_keys(&mut self, from: BlockId, to: BlockId) {
        debug_assert!(!self.blocks.is_cached(to));
        let num_tokens = self.blocks.last_hash_num_tokens(from);
        let keys: Vec<_> = self.keys_of(from).collect();
        let is_pinned = self.blocks.is_pinned(from);
        self.remove_keys_silently(from);
        keys.into_iter().for_each(|key| self.insert_key(to, key, num_tokens));
        self.eviction.moved(&mut self.blocks, from, to);
        // Only cached blocks go to the pinned tier.
        self.blocks.set_pinned(to, is_pinned && self.blocks.is_cached(to));
    }

    /// Takes every key of a block away and reports each as removed.
    pub fn remove_keys(&mut self, block: BlockId) {
        self.cut_at(block);
        if self.blocks.has_plain_key(block) {
            self.blocks.clear_key(block);
            self.forget_plain_key(block);
        } else if let Some(own) = self.blocks.key(block) {
            self.remove_entry(block, &own);
            self.remove_alias_keys(block);
            self.blocks.clear_key(block);
            self.num_cached -= 1;
        }
    }

    /// The index forgets the only key of a block, which served it.
    #[inline]
    pub(crate) fn forget_plain_key(&mut self, block: BlockId) {
        let key = self.index.place(self.blocks.fingerprint(block));
        let next_duplicate = self.index.remove_first(key, block);
        self.num_cached -= 1;
        if next_duplicate.is_some() || self.is_watched() {
            self.note_removal(block, &self.blocks.last_key(block), next_duplicate);
        } else {
            self.version += 1;
        }
    }

    /// Whether somebody wants to know which keys go.
    pub(crate) fn is_watched(&self) -> bool {
        self.events.is_some() || self.removals.is_kept()
    }

    fn remove_alias_keys(&mut self, block: BlockId) {
        if self.blocks.has_alias_keys(block) {
            for entry in self.alias_keys.entries_of(block) {
                let key = self.alias_keys.key(entry);
                self.remove_entry(entry, &key);
            }
            self.alias_keys.remove(block);
            self.blocks.set_has_alias_keys(block, false);
        }
    }

    /// As [`Self::remove_keys`], without an event.
    pub fn remove_keys_silently(&mut self, block: BlockId) {
        let events = self.events.take();
        self.remove_keys(block);
        self.events = events;
    }

    /// Number of distinct keys in the index.
    pub fn num_keys(&self) -> usize {
        self.index.len()
    }

    fn remove_entry(&mut self, entry: Entry, key: &CacheKey) {
        let (states, aliases) = (&self.blocks, &self.alias_keys);
        let is_match = |other| entry_has(states, aliases, other, key);
        let next_duplicate = self.index.remove(self.layout.fingerprint_of(key), entry, is_match);
        let block = aliases.block_of(entry);
        self.note_removal(block, key, next_duplicate);
    }

    /// A key of a block left the index, and `next_duplicate` is served in its place.
    fn note_removal(&mut self, block: BlockId, key: &CacheKey, next_duplicate: Option<Entry>) {
        if let Some(next_duplicate) =
            next_duplicate.filter(|&next_duplicate| !AliasKeys::is_alias(next_duplicate))
        {
            self.blocks.set_duplicate(next_duplicate, false);
        }
        self.version += 1;
        let CacheKey { hash, group } = *key;
        let states = &self.blocks;
        self.removals.push(|| RemovedKey {
            block,
            group,
            num_tokens: states.last_hash_num_tokens(block),
        });
        self.push_event(|| Event::Removed { hash, group });
    }
}

fn entry_has(states: &Blocks, aliases: &AliasKeys, entry: Entry, key: &CacheKey) -> bool {
    match AliasKeys::is_alias(entry) {
        true => aliases.key(entry) == *key,
        false => states.has_key(entry, key),
    }
}

fn entry_key(states: &Blocks, aliases: &AliasKeys, entry: Entry) -> CacheKey {
    match AliasKeys::is_alias(entry) {
        true => aliases.key(entry),
        false => states.last_key(entry),
    }
}
