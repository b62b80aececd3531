//! What a request saw of the tier.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use super::{Position, hash_of};
use crate::block::{CacheKey, GroupId};

/// How a request saw a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Access {
    pub(super) is_inserted: bool,
    pub(super) is_reused: bool,
    /// Whether the policy was told that the request stores the key.
    pub(super) is_store_miss: bool,
}

impl Access {
    /// Notes the use of a chunk that the request did not store itself.
    pub(super) fn note_reuse(&mut self) {
        self.is_reused |= !self.is_inserted;
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) key: CacheKey,
    pub(super) position: Position,
    pub(super) access: Access,
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
    /// The slots in `seen` of its first keys; the others are added when a key is looked for.
    index: HashTable<u32>,
    /// The last position in each group: a key behind it was not seen before.
    last: HashMap<GroupId, u32, FixedState>,
    has_unknown_positions: bool,
    pub(super) is_finished: bool,
    /// The rank that the request's keys share while it runs.
    pub(super) rank: Option<u64>,
}

impl HostRequest {
    pub(super) fn new(owner: (u64, u64)) -> Self {
        Self { owner: Some(owner), ..Self::default() }
    }

    pub(super) fn sees(&mut self, key: &CacheKey) -> bool {
        self.slot(key).is_some()
    }

    /// Notes a key and its position. Returns its slot, which it keeps until the request ends, and
    /// whether the key is new.
    pub(super) fn see(&mut self, key: CacheKey, position: Position) -> (u32, bool) {
        if !self.is_behind_all(&key, position)
            && let Some(slot) = self.slot(&key)
        {
            let known = &mut self.seen[slot as usize].position;
            *known = position.or(*known);
            return (slot, false);
        }
        self.has_unknown_positions |= position.is_none();
        self.seen.push(Seen { key, position, access: Access::default() });
        (self.seen.len() as u32 - 1, true)
    }

    /// Whether the position of a key tells that it was not seen. Notes the position.
    fn is_behind_all(&mut self, key: &CacheKey, position: Position) -> bool {
        let Some(position) = position else { return false };
        let last = self.last.entry(key.group).or_insert(0);
        let is_behind = *last < position;
        *last = position.max(*last);
        is_behind && !self.has_unknown_positions
    }

    /// Makes room for further keys.
    pub(super) fn reserve(&mut self, num_keys: usize) {
        self.seen.reserve(num_keys);
    }

    /// Returns how the request saw the key of a slot.
    pub(super) fn access(&mut self, slot: u32) -> &mut Access {
        &mut self.seen[slot as usize].access
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
                self.seen[slot as usize].position = Some(position);
            }
        }
        self.index.clear();
        self.sort();
        self.seen.iter().rev()
    }

    /// Brings the keys into their order, from the head of the prompt on.
    fn sort(&mut self) {
        let has_position = |seen: &Seen| seen.position.is_some();
        if self.seen.iter().all(has_position) {
            return self.seen.sort_by_key(|seen| (seen.position, seen.key.group));
        }
        self.seen.sort_by_key(|seen| seen.key.group);
        for keys in self.seen.chunk_by_mut(|one, other| one.key.group == other.key.group) {
            if keys.iter().all(has_position) {
                keys.sort_by_key(|seen| seen.position);
            }
        }
    }

    fn slot(&mut self, key: &CacheKey) -> Option<u32> {
        let hash = |&at: &u32| hash_of(&self.seen[at as usize].key);
        let places = self.index.len() as u32..self.seen.len() as u32;
        self.index.reserve(places.len(), hash);
        for at in places {
            self.index.insert_unique(hash(&at), at, hash);
        }
        self.index.find(hash_of(key), |&at| self.seen[at as usize].key == *key).copied()
    }
}
