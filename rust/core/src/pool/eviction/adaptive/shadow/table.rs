//! What is known of each sampled block: a hash table with linear probing, of a fixed size so that it
//! never grows in the middle of serving.

use bytemuck::Zeroable;

use crate::pool::blocks::Fingerprint;
use crate::pool::blocks::prefault;

/// The fingerprint of a sampled block. That two blocks have the same one is rare, and mixes up their
/// uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
pub(super) struct ShadowKey(u32);

impl ShadowKey {
    /// No block.
    pub(super) const NONE: Self = Self(0);

    pub(super) fn of(fingerprint: Fingerprint) -> Self {
        Self(fingerprint.0.max(1))
    }
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
pub(super) struct Entry {
    key: ShadowKey,
    /// Its position in its ghost list.
    pub position: u32,
    /// The index of its ghost list.
    pub list: u16,
    /// Of a block in use the epoch of its last use, of a free one the tick of the default cache at
    /// which it became free; both modulo 2^16.
    pub epoch_or_tick: u16,
}

impl Entry {
    /// The list of a block that is in use.
    pub(super) const IN_USE: u16 = u16::MAX;
    /// The list of a key that has just been entered.
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
    /// Entries of a table that mostly is in the processor's cache: less than 400 kB.
    const MAX_IN_CACHE: usize = 1 << 15;

    /// A table for at most `max_len` keys.
    pub(super) fn new(max_len: usize) -> Self {
        Self { slots: prefault::zeros(max_len * 3 / 2 + 2), len: 0, max_len }
    }

    /// The slot where a key is looked for first. Keys are alike in some bits.
    #[inline]
    fn home(&self, ShadowKey(bits): ShadowKey) -> usize {
        /// 2^32 / the golden ratio.
        const SPREAD: u32 = 0x9e37_79b9;
        ((u64::from(bits.wrapping_mul(SPREAD)) * self.slots.len() as u64) >> 32) as usize
    }

    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// Returns the slot of a key, or else the empty slot in which it would be entered.
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

    /// The entry of a key, if it has one.
    #[inline]
    pub(super) fn get_mut(&mut self, key: ShadowKey) -> Option<&mut Entry> {
        self.find(key).ok().map(|slot| &mut self.slots[slot])
    }

    /// The entry of a key, which may be new; `None` if the table is full.
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

    /// Reads the entries of keys, so that the waits for memory overlap, if there are any.
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

    /// Empties a slot, and moves an entry there that belongs nearer to its home.
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

    /// Forgets the keys of a part of the table, of `num_parts` parts, that are not to be kept.
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

    /// Beside a map that does the same, in a table so full that keys stand far from home.
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
        // What moved behind the part that was swept is found in the next round.
        (0..7).for_each(|part| table.sweep(part, 7, |entry| entry.epoch_or_tick % 2 == 0));
        assert_eq!(table.len, 500);
        assert!((1..=1000).all(|n| table.get_mut(key(n)).is_some() == (n % 2 == 0)));
        table.clear();
        assert_eq!((table.len, table.get_mut(key(2))), (0, None));
    }
}
