//! Keys with a count, in an order.

use hashbrown::HashTable;

use super::key::hash_of;
use super::links::{Links, NONE, Order};
use crate::block::CacheKey;

/// Keys with a count each, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct OrderedKeys {
    entries: Vec<(CacheKey, u32)>,
    vacant: Vec<u32>,
    links: Links,
    order: Order,
    index: HashTable<u32>,
}

impl OrderedKeys {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the count of a key.
    pub(super) fn count(&self, key: &CacheKey) -> Option<u32> {
        self.place(key).map(|place| self.entries[place as usize].1)
    }

    /// Adds a key that is not there, with a count of 1, at the end.
    pub(super) fn push(&mut self, key: CacheKey) {
        let place = self.vacant.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(place as usize) {
            Some(entry) => *entry = (key, 1),
            None => self.entries.push((key, 1)),
        }
        self.order.push(&mut self.links, place);
        let entries = &self.entries;
        self.index.insert_unique(hash_of(&key), place, |&at| hash_of(&entries[at as usize].0));
    }

    /// Moves a key to the end. Returns whether it is there.
    pub(super) fn move_to_end(&mut self, key: &CacheKey) -> bool {
        let place = self.place(key);
        place.inspect(|&place| self.order.move_to_end(&mut self.links, place)).is_some()
    }

    /// Moves a key to the end and adds 1 to its count. Returns whether it is there.
    pub(super) fn count_again(&mut self, key: &CacheKey) -> bool {
        let Some(place) = self.place(key) else { return false };
        self.order.move_to_end(&mut self.links, place);
        let count = &mut self.entries[place as usize].1;
        *count = count.saturating_add(1);
        true
    }

    /// Removes a key if it is there.
    pub(super) fn remove(&mut self, key: &CacheKey) {
        let entries = &self.entries;
        let found = self.index.find_entry(hash_of(key), |&at| entries[at as usize].0 == *key);
        if let Ok(entry) = found {
            let (place, _) = entry.remove();
            self.order.remove(&mut self.links, place);
            self.vacant.push(place);
        }
    }

    /// Removes the oldest key.
    pub(super) fn pop_first(&mut self) {
        let first = self.order.first();
        if first != NONE {
            let key = self.entries[first as usize].0;
            self.remove(&key);
        }
    }

    /// Returns the keys with their counts, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CacheKey, u32)> + '_ {
        self.order.iter(&self.links).map(|place| self.entries[place as usize])
    }

    fn place(&self, key: &CacheKey) -> Option<u32> {
        let is_key = |&at: &u32| self.entries[at as usize].0 == *key;
        self.index.find(hash_of(key), is_key).copied()
    }
}
