//! Keys of evicted blocks, in the order of their eviction.

use std::collections::{HashMap, VecDeque};

use kvoxide_core::CacheKey;

/// Keys without blocks, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Ghosts {
    /// The keys with the number of their latest entry. Other entries of a key are void.
    latest: HashMap<CacheKey, u64>,
    entries: VecDeque<(u64, CacheKey)>,
    next: u64,
}

impl Ghosts {
    pub fn len(&self) -> usize {
        self.latest.len()
    }

    pub fn push(&mut self, key: CacheKey) {
        self.latest.insert(key, self.next);
        self.entries.push_back((self.next, key));
        self.next += 1;
    }

    /// Removes a key. Returns whether it was there.
    pub fn take(&mut self, key: &CacheKey) -> bool {
        self.latest.remove(key).is_some()
    }

    /// Removes the oldest keys until there are at most `most`.
    pub fn trim(&mut self, most: usize) {
        while self.len() > most {
            let Some((number, key)) = self.entries.pop_front() else { return };
            if self.latest.get(&key) == Some(&number) {
                self.latest.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::toy_pool::key;

    #[test]
    fn the_oldest_keys_are_forgotten_first() {
        let mut ghosts = Ghosts::default();
        [1, 2, 1, 3].into_iter().for_each(|name| ghosts.push(key(name)));
        assert_eq!(ghosts.len(), 3);
        ghosts.trim(2);
        assert!(!ghosts.take(&key(2)), "key 1 was pushed again after it");
        assert!(ghosts.take(&key(1)) && ghosts.take(&key(3)) && !ghosts.take(&key(3)));
    }
}
