//! The chunks of the tier and the index of their keys.

use std::collections::VecDeque;

use hashbrown::HashTable;

use super::key::hash_of;
use crate::block::{BlockHash, CacheKey, GroupId};
use crate::error::{Error, Result};

/// The index of a chunk in host memory.
pub type ChunkId = u32;

/// The most chunks of a tier.
pub const MAX_CHUNKS: usize = 1 << 31;

/// References of a chunk that is being stored.
const PENDING: i32 = -1;
/// References of a record without a key.
const FREED: i32 = -2;

#[derive(Clone, Copy, Debug)]
struct Record {
    hash: BlockHash,
    references: i32,
    group: GroupId,
    flags: Flags,
}

/// Properties of a chunk.
#[derive(Clone, Copy, Debug, Default)]
struct Flags(u8);

impl Flags {
    /// The offer in progress has the key, so that the chunk is not evicted for it.
    const OFFERED: u8 = 1;
    /// A load is noted, for which other loads of the key wait.
    const LOADING: u8 = 2;
    /// The chunk was loaded since it was stored.
    const LOADED: u8 = 4;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn set(&mut self, flag: u8, is_set: bool) {
        self.0 = if is_set { self.0 | flag } else { self.0 & !flag };
    }
}

impl Record {
    fn key(&self) -> CacheKey {
        CacheKey { hash: self.hash, group: self.group }
    }
}

/// A guess at the chunk of the next key. Keys that follow each other in a prompt mostly have
/// consecutive chunks, up or down, so the index is only asked where a row of chunks begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    guess: ChunkId,
    step: ChunkId,
}

impl Cursor {
    /// For keys from the head of a prompt on.
    pub(super) fn forwards() -> Self {
        Self { guess: ChunkId::MAX, step: 1 }
    }

    /// For keys from the head of a prompt on. The guess is that the first key has this chunk.
    pub(super) fn forwards_from(guess: ChunkId) -> Self {
        Self { guess, ..Self::forwards() }
    }

    /// For keys from the end of a prompt on.
    pub(super) fn backwards() -> Self {
        Self { step: ChunkId::MAX, ..Self::forwards() }
    }

    /// Turns if a chunk that was not guessed is on the other side of the chunk before.
    fn turn_to(&mut self, chunk: ChunkId) {
        if chunk.wrapping_add(self.step).wrapping_add(self.step) == self.guess {
            self.step = self.step.wrapping_neg();
        }
    }
}

/// Chunks by id. Ids that were never used are given before freed ones; of these the last freed one
/// is the first.
#[derive(Debug)]
pub(super) struct Chunks {
    capacity: usize,
    records: Vec<Record>,
    freed: Vec<ChunkId>,
    index: HashTable<ChunkId>,
    num_evictable: usize,
    num_pending: usize,
    num_loading: usize,
    num_inserted: u64,
    transfers: Transfers,
    removals: Removals,
}

/// Chunks that were copied to and from a tier since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// The number of stores that succeeded.
    pub stored: u64,
    /// The number of loads that ended.
    pub loaded: u64,
    /// The number of chunks that were evicted and never loaded. A reset counts for none.
    pub never_loaded: u64,
}

/// Chunks that lost their keys, the last ones of them.
#[derive(Debug, Default)]
struct Removals {
    last: VecDeque<ChunkId>,
    num: u64,
}

impl Removals {
    const MAX_LEN: usize = 1 << 16;

    fn push(&mut self, chunk: ChunkId) {
        if self.last.len() == Self::MAX_LEN {
            self.last.pop_front();
        }
        self.last.push_back(chunk);
        self.num += 1;
    }
}

impl Chunks {
    pub(super) fn new(capacity: usize) -> Result<Self> {
        let too_many = |what: &str| {
            Error::Config(format!("{capacity} chunks are too many: {what}; use fewer"))
        };
        if capacity > MAX_CHUNKS {
            return Err(too_many(&format!("at most {MAX_CHUNKS} are allowed")));
        }
        let no_memory = || too_many("there is not enough memory to manage them");
        let mut records = Vec::new();
        records.try_reserve_exact(capacity).map_err(|_| no_memory())?;
        let mut index = HashTable::new();
        index.try_reserve(capacity, |_| 0).map_err(|_| no_memory())?;
        let (num_evictable, num_pending, num_loading) = (0, 0, 0);
        let freed = Vec::new();
        let removals = Removals::default();
        Ok(Self {
            capacity,
            records,
            freed,
            index,
            num_evictable,
            num_pending,
            num_loading,
            num_inserted: 0,
            transfers: Transfers::default(),
            removals,
        })
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn num_free(&self) -> usize {
        self.freed.len() + self.capacity - self.records.len()
    }

    /// Returns the chunks that lost their keys; the last one is given first.
    pub(super) fn freed(&self) -> &[ChunkId] {
        &self.freed
    }

    /// Returns how many chunks have a key.
    pub(super) fn num_used(&self) -> usize {
        self.capacity - self.num_free()
    }

    /// Returns how many ids were given out since the last reset, free ones again among them.
    pub(super) fn num_allocated(&self) -> usize {
        self.records.len()
    }

    pub(super) fn num_evictable(&self) -> usize {
        self.num_evictable
    }

    pub(super) fn num_pending(&self) -> usize {
        self.num_pending
    }

    pub(super) fn find(&self, key: &CacheKey) -> Option<ChunkId> {
        self.index.find(hash_of(key), |&chunk| self.key(chunk) == *key).copied()
    }

    /// Returns the chunk of a key that follows the one before it in a prompt.
    #[inline]
    pub(super) fn find_next(&self, key: &CacheKey, cursor: &mut Cursor) -> Option<ChunkId> {
        let chunk = match self.is_at(cursor.guess, key) {
            true => cursor.guess,
            false => self.find_elsewhere(key, cursor)?,
        };
        cursor.guess = chunk.wrapping_add(cursor.step);
        Some(chunk)
    }

    /// Finds a key whose chunk was not guessed.
    fn find_elsewhere(&self, key: &CacheKey, cursor: &mut Cursor) -> Option<ChunkId> {
        let chunk = self.find(key)?;
        cursor.turn_to(chunk);
        Some(chunk)
    }

    /// Returns whether a key has this chunk.
    #[inline]
    fn is_at(&self, chunk: ChunkId, key: &CacheKey) -> bool {
        let is_there = |record: &Record| record.references != FREED && record.key() == *key;
        self.records.get(chunk as usize).is_some_and(is_there)
    }

    #[inline]
    pub(super) fn key(&self, chunk: ChunkId) -> CacheKey {
        self.records[chunk as usize].key()
    }

    /// Returns the number of loads that use the chunk; `None` while it is pending.
    pub(super) fn references(&self, chunk: ChunkId) -> Option<u32> {
        u32::try_from(self.records[chunk as usize].references).ok()
    }

    pub(super) fn is_ready(&self, chunk: ChunkId) -> bool {
        self.records[chunk as usize].references != PENDING
    }

    pub(super) fn is_evictable(&self, chunk: ChunkId) -> bool {
        self.records[chunk as usize].references == 0
    }

    /// Returns how many chunks lost their keys so far; a reset counts for none.
    pub(super) fn num_removals(&self) -> u64 {
        self.removals.num
    }

    /// Returns the chunks that lost their keys after the first so many did, if it is still known.
    pub(super) fn removals_since(
        &self,
        num: u64,
    ) -> Option<impl ExactSizeIterator<Item = ChunkId>> {
        let num_new = usize::try_from(self.removals.num.checked_sub(num)?).ok()?;
        let first = self.removals.last.len().checked_sub(num_new)?;
        Some(self.removals.last.range(first..).copied())
    }

    /// Returns how many times a key got a chunk.
    pub(super) fn num_inserted(&self) -> u64 {
        self.num_inserted
    }

    pub(super) fn num_loading(&self) -> usize {
        self.num_loading
    }

    pub(super) fn is_loading(&self, chunk: ChunkId) -> bool {
        self.records[chunk as usize].flags.has(Flags::LOADING)
    }

    pub(super) fn set_loading(&mut self, chunk: ChunkId, is_loading: bool) {
        let flags = &mut self.records[chunk as usize].flags;
        self.num_loading -= usize::from(flags.has(Flags::LOADING));
        self.num_loading += usize::from(is_loading);
        flags.set(Flags::LOADING, is_loading);
    }

    pub(super) fn is_offered(&self, chunk: ChunkId) -> bool {
        self.records[chunk as usize].flags.has(Flags::OFFERED)
    }

    pub(super) fn set_offered(&mut self, chunk: ChunkId, is_offered: bool) {
        self.records[chunk as usize].flags.set(Flags::OFFERED, is_offered);
    }

    /// Removes a reference of a load that ends. Returns whether the chunk had one.
    pub(super) fn end_load(&mut self, chunk: ChunkId) -> bool {
        let has_ended = self.release(chunk).is_some();
        if has_ended {
            self.records[chunk as usize].flags.set(Flags::LOADED, true);
        }
        has_ended
    }

    /// Counts chunks whose loads ended.
    pub(super) fn count_loads(&mut self, num_chunks: usize) {
        self.transfers.loaded += num_chunks as u64;
    }

    /// Returns how many chunks were copied.
    pub(super) fn transfers(&self) -> Transfers {
        self.transfers
    }

    /// Returns the keys of all chunks with the chunks, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CacheKey, ChunkId)> + '_ {
        self.index.iter().map(|&chunk| (self.key(chunk), chunk))
    }

    /// Gives a key that has none a pending chunk. There must be a free one.
    pub(super) fn insert(&mut self, key: CacheKey) -> ChunkId {
        let CacheKey { hash, group } = key;
        let record = Record { hash, references: PENDING, group, flags: Flags::default() };
        let chunk = if self.records.len() < self.capacity {
            self.records.push(record);
            (self.records.len() - 1) as ChunkId
        } else {
            let chunk = self.freed.pop().unwrap_or_default();
            self.records[chunk as usize] = record;
            chunk
        };
        let records = &self.records;
        let hash = |&at: &ChunkId| hash_of(&records[at as usize].key());
        self.index.insert_unique(hash_of(&key), chunk, hash);
        self.num_pending += 1;
        self.num_inserted += 1;
        chunk
    }

    /// Frees an evictable or pending chunk.
    pub(super) fn remove(&mut self, chunk: ChunkId) {
        if let Ok(entry) = self.index.find_entry(hash_of(&self.key(chunk)), |&at| at == chunk) {
            entry.remove();
        }
        match self.is_ready(chunk) {
            true => {
                let was_loaded = self.records[chunk as usize].flags.has(Flags::LOADED);
                self.transfers.never_loaded += u64::from(!was_loaded);
                self.num_evictable -= 1;
            }
            false => self.num_pending -= 1,
        }
        self.set_loading(chunk, false);
        self.removals.push(chunk);
        self.records[chunk as usize].references = FREED;
        self.freed.push(chunk);
    }

    /// Makes a pending chunk ready and evictable.
    pub(super) fn make_ready(&mut self, chunk: ChunkId) {
        self.records[chunk as usize].references = 0;
        self.num_pending -= 1;
        self.num_evictable += 1;
        self.transfers.stored += 1;
    }

    /// Adds a reference to a ready chunk.
    pub(super) fn acquire(&mut self, chunk: ChunkId) {
        let references = &mut self.records[chunk as usize].references;
        self.num_evictable -= usize::from(*references == 0);
        *references += 1;
    }

    /// Removes a reference. Returns whether the chunk became evictable; `None` if it has no
    /// reference.
    pub(super) fn release(&mut self, chunk: ChunkId) -> Option<bool> {
        let references = &mut self.records[chunk as usize].references;
        if *references <= 0 {
            return None;
        }
        *references -= 1;
        let is_evictable = *references == 0;
        self.num_evictable += usize::from(is_evictable);
        Some(is_evictable)
    }

    /// Frees all chunks, whatever their references.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.freed.clear();
        self.index.clear();
        (self.num_evictable, self.num_pending, self.num_loading) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> CacheKey {
        CacheKey { hash: BlockHash([n, 0, 0, 0]), group: 1 }
    }

    #[test]
    fn unused_ids_come_first_then_the_last_freed_one() {
        let mut chunks = Chunks::new(3).expect("a size that fits");
        assert_eq!([1, 2].map(|n| chunks.insert(key(n))), [0, 1]);
        chunks.remove(0);
        chunks.remove(1);
        assert_eq!([3, 4, 5].map(|n| chunks.insert(key(n))), [2, 1, 0]);
        assert_eq!(
            (chunks.num_free(), chunks.find(&key(1)), chunks.find(&key(4))),
            (0, None, Some(1))
        );
    }

    #[test]
    fn references_and_counts_go_together() {
        let mut chunks = Chunks::new(1).expect("a size that fits");
        let chunk = chunks.insert(key(1));
        assert_eq!((chunks.references(chunk), chunks.release(chunk)), (None, None));
        chunks.make_ready(chunk);
        chunks.acquire(chunk);
        chunks.acquire(chunk);
        assert_eq!((chunks.num_evictable(), chunks.references(chunk)), (0, Some(2)));
        assert_eq!([0; 3].map(|_| chunks.release(chunk)), [Some(false), Some(true), None]);
        assert_eq!((chunks.num_evictable(), chunks.num_pending()), (1, 0));
    }

    #[test]
    fn a_guess_is_right_or_the_index_is_asked() {
        let mut chunks = Chunks::new(4).expect("a size that fits");
        assert_eq!([1, 2, 3].map(|n| chunks.insert(key(n))), [0, 1, 2]);
        chunks.remove(1);
        for mut cursor in [Cursor::forwards(), Cursor::backwards()] {
            let found = [1, 2, 3, 1, 4].map(|n| chunks.find_next(&key(n), &mut cursor));
            assert_eq!(found, [Some(0), None, Some(2), Some(0), None]);
        }
    }

    #[test]
    fn a_cursor_turns_where_chunks_are_in_reverse() {
        let mut chunks = Chunks::new(4).expect("a size that fits");
        (0..4).for_each(|n| _ = chunks.insert(key(n)));
        let mut cursor = Cursor::forwards();
        let guesses = [3, 2, 1, 2, 3].map(|n| {
            chunks.find_next(&key(n), &mut cursor);
            cursor.guess
        });
        assert_eq!(guesses, [4, 1, 0, 3, 4]);
    }

    #[test]
    fn too_many_chunks_are_refused() {
        assert!(Chunks::new(MAX_CHUNKS + 1).is_err());
    }
}
