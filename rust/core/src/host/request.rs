//! The keys that a request saw.

use hashbrown::HashTable;

use super::key::{Position, hash_of};
use crate::block::{BlockHash, CacheKey, GroupId};

/// A key and how a request saw it, in 40 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    hash: BlockHash,
    /// 0 while it is not known.
    position: u32,
    group: GroupId,
    flags: u8,
}

const _: () = assert!(size_of::<Seen>() == 40);

impl Seen {
    const HAS_POSITION: u8 = 1;
    const IS_INSERTED: u8 = 2;
    const IS_REUSED: u8 = 4;
    const IS_STORE_MISS: u8 = 8;

    fn new(CacheKey { hash, group }: CacheKey, position: Position) -> Self {
        let mut seen = Self { hash, position: 0, group, flags: 0 };
        seen.set_position(position);
        seen
    }

    /// Returns the key.
    pub fn key(&self) -> CacheKey {
        CacheKey { hash: self.hash, group: self.group }
    }

    fn has_position(&self) -> bool {
        self.flags & Self::HAS_POSITION != 0
    }

    /// Changes the position if there is one.
    fn set_position(&mut self, position: Position) {
        if let Some(position) = position {
            self.position = position;
            self.flags |= Self::HAS_POSITION;
        }
    }

    /// Whether the request stored the key.
    pub fn is_inserted(&self) -> bool {
        self.flags & Self::IS_INSERTED != 0
    }

    /// Whether the request used a chunk of the key that it had not stored before.
    pub fn is_reused(&self) -> bool {
        self.flags & Self::IS_REUSED != 0
    }

    /// Whether the policy knows that the request stores the key.
    pub fn is_store_miss(&self) -> bool {
        self.flags & Self::IS_STORE_MISS != 0
    }

    pub(super) fn note_insertion(&mut self) {
        self.flags |= Self::IS_INSERTED;
    }

    /// Notes the use of a chunk that the request did not store itself.
    pub(super) fn note_reuse(&mut self) {
        if !self.is_inserted() {
            self.flags |= Self::IS_REUSED;
        }
    }

    /// Notes that the policy learned that the request stores the key. Returns whether it knew before.
    pub(super) fn note_store_miss(&mut self) -> bool {
        let was_known = self.is_store_miss();
        self.flags |= Self::IS_STORE_MISS;
        was_known
    }
}

/// The keys that a request saw, which count as one use when it ends.
///
/// The request belongs to one tier, up to its next reset: any other tier, and the same one after a
/// reset, treats it as a new one.
#[derive(Clone, Debug, Default)]
pub struct HostRequest {
    /// The tier and the number of its resets.
    pub(super) owner: Option<(u64, u64)>,
    seen: Vec<Seen>,
    /// The slots in `seen` of its first keys; [`Self::index_seen_keys`] adds the others.
    index: HashTable<u32>,
    /// The last position in each group: a key after it was not seen before.
    last: Vec<u32>,
    has_unknown_positions: bool,
    pub(super) is_finished: bool,
    /// The rank that the request's keys share while it runs.
    pub(super) rank: Option<u64>,
}

impl HostRequest {
    pub(super) fn new(owner: (u64, u64)) -> Self {
        Self { owner: Some(owner), ..Self::default() }
    }

    /// Returns the keys that the request saw, in that order until it ends.
    pub fn seen(&self) -> &[Seen] {
        &self.seen
    }

    /// Whether the request ended.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Returns the rank that the request's keys share under LRU, if it has one.
    pub fn rank(&self) -> Option<u64> {
        self.rank
    }

    /// Adds the keys that the index lacks. [`Self::has_seen`] finds only keys in the index.
    pub(super) fn index_seen_keys(&mut self) {
        let hash = |&at: &u32| hash_of(&self.seen[at as usize].key());
        let places = self.index.len() as u32..self.seen.len() as u32;
        self.index.reserve(places.len(), hash);
        for at in places {
            self.index.insert_unique(hash(&at), at, hash);
        }
    }

    /// Returns whether the request saw a key.
    pub(super) fn has_seen(&self, key: &CacheKey) -> bool {
        self.find_slot(key).is_some()
    }

    /// Notes a key and its position. Returns its slot, which it keeps until the request ends, and
    /// whether the key is new.
    pub(super) fn note_seen(&mut self, key: CacheKey, position: Position) -> (u32, bool) {
        let is_new = self.is_after_all_seen(&key, position);
        self.note_position(&key, position);
        if !is_new && let Some(slot) = self.slot(&key) {
            self.seen[slot as usize].set_position(position);
            return (slot, false);
        }
        self.has_unknown_positions |= position.is_none();
        self.seen.push(Seen::new(key, position));
        (self.seen.len() as u32 - 1, true)
    }

    /// Whether a key cannot have been seen, because its position comes after all seen in its group.
    fn is_after_all_seen(&self, key: &CacheKey, position: Position) -> bool {
        let Some(position) = position else { return false };
        let last = self.last.get(usize::from(key.group)).copied().unwrap_or_default();
        last < position && !self.has_unknown_positions
    }

    fn note_position(&mut self, key: &CacheKey, position: Position) {
        let Some(position) = position else { return };
        let group = usize::from(key.group);
        if group >= self.last.len() {
            self.last.resize(group + 1, 0);
        }
        self.last[group] = position.max(self.last[group]);
    }

    /// Makes room for further keys.
    pub(super) fn reserve(&mut self, num_keys: usize) {
        self.seen.reserve(num_keys);
    }

    /// Returns the key of a slot.
    pub(super) fn at(&mut self, slot: u32) -> &mut Seen {
        &mut self.seen[slot as usize]
    }

    /// Ends the request. Returns its keys from the end of the prompt on: by position if all have
    /// one, else group by group, each by position if all of its keys have one.
    pub(super) fn finish(
        &mut self,
        positions: impl IntoIterator<Item = (CacheKey, u32)>,
    ) -> impl Iterator<Item = &Seen> {
        self.is_finished = true;
        for (key, position) in positions {
            if let Some(slot) = self.slot(&key) {
                self.seen[slot as usize].set_position(Some(position));
            }
        }
        self.index.clear();
        self.sort();
        self.seen.iter().rev()
    }

    /// Brings the keys into their order, from the head of the prompt on.
    fn sort(&mut self) {
        if !self.has_unknown_positions || self.seen.iter().all(Seen::has_position) {
            return self.seen.sort_by_key(|seen| (seen.position, seen.group));
        }
        self.seen.sort_by_key(|seen| seen.group);
        for keys in self.seen.chunk_by_mut(|one, other| one.group == other.group) {
            if keys.iter().all(Seen::has_position) {
                keys.sort_by_key(|seen| seen.position);
            }
        }
    }

    fn slot(&mut self, key: &CacheKey) -> Option<u32> {
        self.index_seen_keys();
        self.find_slot(key)
    }

    fn find_slot(&self, key: &CacheKey) -> Option<u32> {
        self.index.find(hash_of(key), |&at| self.seen[at as usize].key() == *key).copied()
    }
}
