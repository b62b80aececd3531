//! Remembers the keys that were evicted last, and measures how soon they are asked for again.
//!
//! The memory is a table of sets of eight entries. A key belongs to one set. If the set is full, the
//! key that was remembered first is forgotten. So the memory is bounded, and no insertion searches.

use prefetch_index::prefetch_index;

use crate::pool::blocks::Fingerprint;

/// The number of entries of a set. A set is one cache line.
const WAYS: usize = 8;

/// The resolution of times.
const TICKS_PER_SECOND: f64 = 16.0;

/// A bit of an entry: whether the key was asked for after its eviction.
const ASKED: u64 = 1 << 31;
const TICK_MASK: u64 = ASKED - 1;

/// Some keys that were evicted, with the times of their evictions.
///
/// An entry has the fingerprint of the key in its upper half, and [`ASKED`] and the tick of the
/// eviction in its lower half. Ticks start at 1, so no entry is 0; 0 is a free place.
#[derive(Debug)]
pub(crate) struct EvictedKeys {
    sets: Vec<Set>,
    /// The time of the first call of [`Self::set_now`], in seconds.
    origin: Option<f64>,
    now: u64,
    gaps: ReuseGaps,
}

/// The entries of a set. The entry that was remembered last comes first, and free places come last.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Set([u64; WAYS]);

impl EvictedKeys {
    /// Creates a memory for up to `num_keys` keys, rounded down to whole sets. It has at least one
    /// set.
    pub(crate) fn new(num_keys: usize) -> Self {
        let num_sets = (num_keys / WAYS).clamp(1, u32::MAX as usize);
        Self {
            sets: vec![Set::default(); num_sets],
            origin: None,
            now: 1,
            gaps: ReuseGaps::default(),
        }
    }

    /// Sets the time, in seconds. Only differences between times matter. A time that is not finite
    /// changes nothing.
    pub(crate) fn set_now(&mut self, seconds: f64) {
        if !seconds.is_finite() {
            return;
        }
        let elapsed = seconds - *self.origin.get_or_insert(seconds);
        // The conversion saturates, and a clock that jumped to before the origin is at the origin.
        self.now = ((elapsed * TICKS_PER_SECOND) as u64).saturating_add(1).min(TICK_MASK);
    }

    /// Reads the memory that questions about these keys will read, so that the waits for memory
    /// overlap.
    pub(super) fn prefetch(&self, keys: impl Iterator<Item = Fingerprint>) {
        keys.for_each(|key| prefetch_index(&self.sets, self.set_of(key)));
    }

    /// Remembers keys that are evicted now.
    pub(super) fn remember(&mut self, evicted: impl Iterator<Item = Fingerprint> + Clone) {
        self.prefetch(evicted.clone());
        evicted.for_each(|key| self.remember_one(key));
    }

    fn remember_one(&mut self, key: Fingerprint) {
        let place = self.set_of(key);
        let Set(entries) = &mut self.sets[place];
        let former = entries.iter().position(|&entry| has_key(entry, key)).unwrap_or(WAYS - 1);
        entries.copy_within(..former, 1);
        entries[0] = u64::from(key.0) << 32 | self.now;
    }

    /// Returns whether a key is remembered. The first call after an eviction counts the time since
    /// the eviction.
    pub(super) fn ask(&mut self, key: Fingerprint) -> bool {
        let place = self.set_of(key);
        let Set(entries) = &mut self.sets[place];
        let Some(entry) = entries.iter_mut().find(|entry| has_key(**entry, key)) else {
            return false;
        };
        if *entry & ASKED == 0 {
            let num_ticks = self.now.saturating_sub(*entry & TICK_MASK);
            *entry |= ASKED;
            self.gaps.add(num_ticks);
        }
        true
    }

    /// Forgets all keys. Counts stay.
    pub(super) fn clear(&mut self) {
        self.sets.fill(Set::default());
    }

    /// Returns how soon evicted keys were asked for again.
    pub(crate) fn gaps(&self) -> &ReuseGaps {
        &self.gaps
    }

    #[inline]
    fn set_of(&self, Fingerprint(bits): Fingerprint) -> usize {
        // The lowest bits of a fingerprint are the group. The multiplication moves them up.
        let mixed = u64::from(bits.wrapping_mul(0x9e37_79b1));
        ((mixed * self.sets.len() as u64) >> 32) as usize
    }
}

#[inline]
fn has_key(entry: u64, Fingerprint(bits): Fingerprint) -> bool {
    (entry >> 32) as u32 == bits && entry != 0
}

/// A histogram of the times from evictions of keys to the first requests for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReuseGaps {
    counts: [u64; Self::NUM_BOUNDS + 1],
    num_ticks: u64,
}

impl ReuseGaps {
    /// The number of bounds: 1, 2, 4 seconds and so on, up to 36 hours.
    pub const NUM_BOUNDS: usize = 18;

    /// Returns the bounds, in seconds. A time equal to a bound counts below it.
    pub fn bounds() -> [f64; Self::NUM_BOUNDS] {
        std::array::from_fn(|i| (1_u64 << i) as f64)
    }

    /// Returns the number of times in each interval between the bounds. The last one has no upper
    /// bound.
    pub fn counts(&self) -> &[u64; Self::NUM_BOUNDS + 1] {
        &self.counts
    }

    /// Returns the sum of all times, in seconds.
    pub fn sum(&self) -> f64 {
        self.num_ticks as f64 / TICKS_PER_SECOND
    }

    fn add(&mut self, num_ticks: u64) {
        let seconds = num_ticks.div_ceil(TICKS_PER_SECOND as u64);
        // The smallest power of two that is not below the time.
        let bound = seconds.max(1).next_power_of_two().trailing_zeros() as usize;
        self.counts[bound.min(Self::NUM_BOUNDS)] += 1;
        self.num_ticks += num_ticks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remember(keys: &mut EvictedKeys, numbers: impl Iterator<Item = u32> + Clone) {
        keys.remember(numbers.map(Fingerprint));
    }

    #[test]
    fn a_full_set_forgets_the_key_that_was_remembered_first() {
        let mut keys = EvictedKeys::new(8);
        remember(&mut keys, 1..=8);
        remember(&mut keys, [1, 9].into_iter());
        let known: Vec<_> = (0..=9).filter(|&key| keys.ask(Fingerprint(key))).collect();
        assert_eq!(known, [1, 3, 4, 5, 6, 7, 8, 9]);
        keys.clear();
        assert!((0..=9).all(|key| !keys.ask(Fingerprint(key))));
        // The keys that were known were asked for once each.
        assert_eq!(keys.gaps().counts().iter().sum::<u64>(), 8);
    }

    #[test]
    fn the_key_of_all_zeros_is_remembered_like_every_other_one() {
        let mut keys = EvictedKeys::new(0);
        assert!(!keys.ask(Fingerprint(0)));
        remember(&mut keys, 0..1);
        assert!(keys.ask(Fingerprint(0)));
    }

    #[test]
    fn an_eviction_is_counted_once_in_the_interval_of_its_age() {
        let mut keys = EvictedKeys::new(64);
        keys.set_now(1_000.0);
        remember(&mut keys, 1..=4);
        for (key, age) in [(1, 1.0), (2, 1.5), (3, 100.0), (4, 1e6), (4, 2e6)] {
            keys.set_now(1_000.0 + age);
            assert!(keys.ask(Fingerprint(key)));
        }
        let counts = keys.gaps().counts();
        assert_eq!((counts[0], counts[1], counts[7], counts[18]), (1, 1, 1, 1));
        assert_eq!(counts.iter().sum::<u64>(), 4);
        assert_eq!(keys.gaps().sum(), 1_000_102.5);
        remember(&mut keys, 1..=1);
        assert!(keys.ask(Fingerprint(1)));
        assert_eq!(keys.gaps().counts()[0], 2);
    }

    #[test]
    fn a_clock_that_jumps_counts_no_negative_age() {
        let mut keys = EvictedKeys::new(64);
        keys.set_now(f64::NAN);
        for (evicted, asked) in [(50.0, 10.0), (f64::NAN, 3.0), (1e300, 60.0), (-1e300, 51.0)] {
            keys.set_now(evicted);
            remember(&mut keys, 7..8);
            keys.set_now(asked);
            assert!(keys.ask(Fingerprint(7)));
        }
        assert_eq!(keys.gaps().counts()[..3], [4, 0, 0]);
        assert_eq!(keys.gaps().sum(), 1.0);
    }

    #[test]
    fn the_memory_keeps_about_as_many_keys_as_it_has_places() {
        let mut keys = EvictedKeys::new(80_000);
        let key = |n: u32| n.wrapping_mul(0x85eb_ca6b).rotate_left(11);
        remember(&mut keys, (0..200_000).map(key));
        let known = (0..200_000).filter(|&n| keys.ask(Fingerprint(key(n)))).count();
        assert!(known > 79_000, "{known}");
        let strangers = (200_000..1_200_000).filter(|&n| keys.ask(Fingerprint(key(n)))).count();
        assert_eq!(strangers, 0, "the keys are distinct");
    }
}
