//! What a request saw of the tier.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::{Position, hash_of};
use crate::block::CacheKey;

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
/// It belongs to one tier, up to its next reset. Any other tier, and the same one after a reset,
/// treats it as a new one.
#[derive(Clone, Debug, Default)]
pub struct HostRequest {
    /// The tier and the number of its resets.
    pub(super) owner: Option<(u64, u64)>,
    seen: Vec<Seen>,
    index: HashTable<u32>,
    pub(super) is_finished: bool,
    /// The rank that the request's keys share while it runs.
    pub(super) rank: Option<u64>,
}

impl HostRequest {
    pub(super) fn new(owner: (u64, u64)) -> Self {
        Self { owner: Some(owner), ..Self::default() }
    }

    pub(super) fn sees(&self, key: &CacheKey) -> bool {
        self.place(key).is_some()
    }

    /// Notes a key and its position. Returns where it stands from now on, and whether it is new.
    pub(super) fn see(&mut self, key: CacheKey, position: Position) -> (u32, bool) {
        let (seen, hash) = (&mut self.seen, hash_of(&key));
        let entry = self.index.entry(
            hash,
            |&at| seen[at as usize].key == key,
            |&at| hash_of(&seen[at as usize].key),
        );
        match entry {
            Entry::Occupied(place) => {
                let place = *place.get();
                let known = &mut seen[place as usize].position;
                *known = position.or(*known);
                (place, false)
            }
            Entry::Vacant(vacant) => {
                let place = seen.len() as u32;
                vacant.insert(place);
                seen.push(Seen { key, position, access: Access::default() });
                (place, true)
            }
        }
    }

    /// Makes room for further keys.
    pub(super) fn reserve(&mut self, num_keys: usize) {
        let seen = &self.seen;
        self.index.reserve(num_keys, |&at| hash_of(&seen[at as usize].key));
        self.seen.reserve(num_keys);
    }

    /// Returns how the request saw the key that stands there.
    pub(super) fn access(&mut self, place: u32) -> &mut Access {
        &mut self.seen[place as usize].access
    }

    /// Ends the request. Returns its keys from the end of the prompt on: by position if all have
    /// one, else group by group, each by position if all of its keys have one.
    pub(super) fn finish(
        &mut self,
        positions: impl IntoIterator<Item = (CacheKey, u32)>,
    ) -> impl Iterator<Item = &Seen> {
        self.is_finished = true;
        for (key, position) in positions {
            if let Some(place) = self.place(&key) {
                self.seen[place as usize].position = Some(position);
            }
        }
        self.order().into_iter().rev().map(|at| &self.seen[at as usize])
    }

    /// Returns where the keys stand, from the head of the prompt on.
    fn order(&self) -> Vec<u32> {
        let seen = |at: &u32| &self.seen[*at as usize];
        let position = |at: &u32| seen(at).position;
        let group = |at: &u32| seen(at).key.group;
        let mut order: Vec<_> = (0..self.seen.len() as u32).collect();
        if order.iter().all(|at| position(at).is_some()) {
            order.sort_by_key(|at| (position(at), group(at)));
            return order;
        }
        order.sort_by_key(group);
        for keys in order.chunk_by_mut(|one, other| group(one) == group(other)) {
            if keys.iter().all(|at| position(at).is_some()) {
                keys.sort_by_key(position);
            }
        }
        order
    }

    fn place(&self, key: &CacheKey) -> Option<u32> {
        self.index.find(hash_of(key), |&at| self.seen[at as usize].key == *key).copied()
    }
}
