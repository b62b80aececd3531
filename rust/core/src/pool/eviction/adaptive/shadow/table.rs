//! The entries of all sampled blocks: a hash table with linear probing. Its size is fixed so that
//! it never grows while the server runs.

use bytemuck::Zeroable;

use crate::pool::blocks::Fingerprint;
use crate::pool::blocks::prefault;

/// The fingerprint of a sampled block. Two blocks rarely have the same fingerprint; if they do,
/// their uses are mixed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
pub(super) struct ShadowKey(u32);

impl ShadowKey {
    /// The key of no block.
    pub(super) const NONE: Self = Self(0);

    pub(super) fn of(fingerprint: Fingerprint) -> Self {
        Self(fingerprint.0.max(1))
    }
}

/// The position of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
pub(super) struct Entry {
    key: ShadowKey,
    /// The position of the key in its ghost list.
    pub position: u32,
    /// The index of the key's ghost list.
    pub list: u16,
    /// For a block in use, the epoch of its last use. For a free block, the tick of the default
    /// cache at which it became free. Both are modulo 2^16.
    pub epoch_or_tick: u16,
}

impl Entry {
    /// The value of `list` for a block that is in use.
    pub(super) const IN_USE: u16 = u16::MAX;
    /// The value of `list` for a key that has just been entered.
    pub(super) const NEW: u16 = u16::MAX - 1;
    const EMPTY: Self = Self::new(ShadowKey::NONE);

    const fn new(key: ShadowKey) -> Self {
        Self { key, position: 0, list: Self::NEW, epoch_or_tick: 0 }
    }

    fn is_empty(&self) -> bool {
        self.key == ShadowKey::NONE
    }
}

#[derive(Debug)]
pub(super) struct ShadowTable {
    slots: Vec<Entry>,
    pub(super) len: usize,
    max_len: usize,
}

impl ShadowTable {
    /// The number of entries in a table that is mostly in the processor's cache: less than 400 kB.
    const MAX_IN_CACHE: usize = 1 << 15;

    /// Creates a table for at most `max_len` keys.
    pub(super) fn new(max_len: usize) -> Self {
        Self { slots: prefault::zeros(max_len * 3 / 2 + 2), len: 0, max_len }
    }

    /// Returns the slot where the search for a key starts. Keys are equal in some bits.
    #[inline]
    fn home(&self, ShadowKey(bits): ShadowKey) -> usize {
        /// 2^32 / the golden ratio.
        const SPREAD: u32 = 0x9e37_79b9;
        ((u64::from(bits.wrapping_mul(SPREAD)) * self.slots.len() as u64) >> 32) as usize
    }

    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// Returns the slot of a key, or as the error the empty slot in which it would be entered.
    #[inline]
    fn find(&self, key: ShadowKey) -> Result<usize, usize> {
        let mut slot = self.home(key);
        loop {
            match self.slots[slot].key {
                ShadowKey::NONE => return Err(slot),
                other if other == key => return Ok(slot),
                _ => slot = self.next(slot),
            }
        }
    }

    /// Returns the entry of a key, if it has one.
    #[inline]
    pub(super) fn get_mut(&mut self, key: ShadowKey) -> Option<&mut Entry> {
        self.find(key).ok().map(|slot| &mut self.slots[slot])
    }

    /// Returns the entry of a key, and creates it if necessary. Returns `None` if the table is
    /// full.
    #[inline]
    pub(super) fn enter(&mut self, key: ShadowKey) -> Option<&mut Entry> {
        let slot = match self.find(key) {
            Ok(slot) => slot,
            Err(_) if self.len == self.max_len => return None,
            Err(slot) => {
                self.len += 1;
                self.slots[slot] = Entry::new(key);
                slot
            }
        };
        Some(&mut self.slots[slot])
    }

    /// Reads the entries of keys in advance, so that waits for memory overlap. Does nothing if the
    /// table is small enough for the processor's cache.
    pub(super) fn prefetch(&self, keys: &[ShadowKey]) {
        if self.slots.len() <= Self::MAX_IN_CACHE {
            return;
        }
        let read = |&key: &ShadowKey| self.slots[self.home(key)].position;
        std::hint::black_box(keys.iter().fold(0, |seen, key| seen ^ read(key)));
    }

    pub(super) fn remove(&mut self, key: ShadowKey) {
        if let Ok(slot) = self.find(key) {
            self.empty(slot);
        }
    }

    /// Empties a slot, and moves entries into the gap that belong nearer to their homes.
    fn empty(&mut self, slot: usize) {
        self.len -= 1;
        let (mut hole, mut next) = (slot, self.next(slot));
        while !self.slots[next].is_empty() {
            let home = self.home(self.slots[next].key);
            if self.distance(home, hole) < self.distance(home, next) {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = self.next(next);
        }
        self.slots[hole] = Entry::EMPTY;
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }

    /// Forgets the keys of part `part` of the table that `keeps` rejects. The table has `num_parts`
    /// parts.
    pub(super) fn sweep(&mut self, part: usize, num_parts: usize, keeps: impl Fn(&Entry) -> bool) {
        let start = |part| self.slots.len() * part / num_parts;
        let (mut slot, end) = (start(part), start(part + 1));
        while slot < end {
            let entry = &self.slots[slot];
            if entry.is_empty() || keeps(entry) {
                slot += 1;
            } else {
                self.empty(slot);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.slots.fill(Entry::EMPTY);
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn key(n: u32) -> ShadowKey {
        ShadowKey::of(Fingerprint(n))
    }

    /// Compares the table with a map, in a table so full that keys are far from their homes.
    #[test]
    fn keys_are_found_until_they_are_removed() {
        let mut table = ShadowTable::new(40);
        let mut expected = HashMap::new();
        let mut state = 1_u32;
        for step in 0..20_000 {
            state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            let n = 1 + (state >> 16) % 64;
            if state >> 12 & 1 == 0 {
                table.remove(key(n));
                expected.remove(&n);
            } else {
                match table.enter(key(n)) {
                    Some(entry) => {
                        assert_eq!(entry.list == Entry::NEW, !expected.contains_key(&n));
                        (entry.list, entry.position) = (1, step);
                        expected.insert(n, step);
                    }
                    None => assert_eq!((expected.len(), expected.get(&n)), (40, None)),
                }
            }
            assert_eq!(table.len, expected.len());
        }
        for n in 1..=64 {
            let position = table.get_mut(key(n)).map(|entry| entry.position);
            assert_eq!(position, expected.get(&n).copied());
        }
    }

    #[test]
    fn a_sweep_of_all_parts_keeps_what_is_to_be_kept() {
        let mut table = ShadowTable::new(1000);
        for n in 1..=1000 {
            table.enter(key(n)).expect("a place").epoch_or_tick = n as u16;
        }
        (0..7).for_each(|part| table.sweep(part, 7, |entry| entry.epoch_or_tick % 2 == 0));
        // The next round finds entries that moved past the part that was swept.
        (0..7).for_each(|part| table.sweep(part, 7, |entry| entry.epoch_or_tick % 2 == 0));
        assert_eq!(table.len, 500);
        assert!((1..=1000).all(|n| table.get_mut(key(n)).is_some() == (n % 2 == 0)));
        table.clear();
        assert_eq!((table.len, table.get_mut(key(2))), (0, None));
    }
}
