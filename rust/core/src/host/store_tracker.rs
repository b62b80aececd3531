//! How often keys were offered, for stores that wait until a key was offered often enough.

use super::ordered_keys::OrderedKeys;
use crate::block::CacheKey;

/// Counts the offers of the keys offered last.
#[derive(Debug)]
pub(super) struct StoreTracker {
    counts: OrderedKeys,
    threshold: u32,
    max_len: usize,
}

impl StoreTracker {
    pub(super) fn new(threshold: u32, max_len: usize) -> Self {
        Self { counts: OrderedKeys::default(), threshold, max_len }
    }

    /// Counts an offer of distinct keys. What is tracked is refreshed before others are admitted,
    /// and these push out only keys that the offer does not have.
    pub(super) fn record(&mut self, keys: &[CacheKey]) {
        let absent: Vec<_> = keys.iter().filter(|key| !self.counts.count_again(key)).collect();
        let mut num_others = self.counts.len() - (keys.len() - absent.len());
        for key in absent {
            if self.counts.len() >= self.max_len {
                if num_others == 0 {
                    continue;
                }
                self.counts.pop_first();
                num_others -= 1;
            }
            self.counts.push(*key);
        }
    }

    /// Whether one more offer of a key will be enough. Offers of other keys do not change that: what
    /// is tracked stays during its offer, and what is not tracked was not offered often enough.
    pub(super) fn will_admit(&self, key: &CacheKey) -> bool {
        self.counts.count(key).is_some_and(|count| count.saturating_add(1) >= self.threshold)
    }

    /// Whether a key was offered often enough.
    pub(super) fn admits(&self, key: &CacheKey) -> bool {
        self.counts.count(key).unwrap_or(0) >= self.threshold
    }

    /// Returns the tracked keys with their counts, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CacheKey, u32)> + '_ {
        self.counts.iter()
    }
}
