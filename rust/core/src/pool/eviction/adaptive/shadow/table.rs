//! What is known of each name of the sample: a hash table of a fixed size, which never grows in the
//! middle of serving, with linear probing.

use bytemuck::Zeroable;

use crate::pool::blocks::fingerprint::Fingerprint;
use crate::pool::blocks::prefault;

/// The name of a block in the sample: its fingerprint, of the prefix that it stands for in its
/// group. That two blocks have one is rare, and moves the counts of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
pub(crate) struct Name(u32);

impl Name {
    /// No name.
    pub const GONE: Self = Self(0);

    pub fn of(fingerprint: Fingerprint) -> Self {
        Self(fingerprint.0.max(1))
    }
}

/// Where a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
pub(crate) struct Entry {
    pub name: Name,
    /// In its bucket.
    pub position: u32,
    pub bucket: u16,
    /// Of its last use, in epochs; wraps.
    pub epoch: u16,
}

impl Entry {
    /// The bucket of a name that somebody uses.
    pub const IN_USE: u16 = u16::MAX;
    /// The bucket of a name that has just been entered.
    pub const NEW: u16 = u16::MAX - 1;
    const EMPTY: Self = Self::new(Name::GONE);

    const fn new(name: Name) -> Self {
        Self { name, position: 0, bucket: Self::NEW, epoch: 0 }
    }

    fn is_empty(&self) -> bool {
        self.name == Name::GONE
    }
}

/// The entries of all names.
#[derive(Debug)]
pub(crate) struct Names {
    slots: Vec<Entry>,
    len: usize,
    max_len: usize,
}

impl Names {
    /// Entries of a table that mostly is in a cache near by: less than 400 kB.
    const MAX_IN_CACHE: usize = 1 << 15;

    /// At most so many names.
    pub fn new(max_len: usize) -> Self {
        Self { slots: prefault::zeros(max_len * 3 / 2 + 2), len: 0, max_len }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where a name is looked for first. Names are alike in some bits.
    #[inline]
    fn home(&self, Name(bits): Name) -> usize {
        /// 2^32 / the golden ratio.
        const SPREAD: u32 = 0x9e37_79b9;
        ((u64::from(bits.wrapping_mul(SPREAD)) * self.slots.len() as u64) >> 32) as usize
    }

    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// Where a name is, if it is anywhere, or else the empty slot in which it would be entered.
    #[inline]
    fn find(&self, name: Name) -> Result<usize, usize> {
        let mut slot = self.home(name);
        loop {
            match self.slots[slot].name {
                Name::GONE => return Err(slot),
                other if other == name => return Ok(slot),
                _ => slot = self.next(slot),
            }
        }
    }

    /// The entry of a name, if it has one.
    #[inline]
    pub fn get_mut(&mut self, name: Name) -> Option<&mut Entry> {
        self.find(name).ok().map(|slot| &mut self.slots[slot])
    }

    /// The entry of a name, which may be new; `None` where there is no place for it.
    #[inline]
    pub fn enter(&mut self, name: Name) -> Option<&mut Entry> {
        let slot = match self.find(name) {
            Ok(slot) => slot,
            Err(_) if self.len == self.max_len => return None,
            Err(slot) => {
                self.len += 1;
                self.slots[slot] = Entry::new(name);
                slot
            }
        };
        Some(&mut self.slots[slot])
    }

    /// Reads the entries of names, so that the waits for memory overlap, if there are any.
    pub fn prefetch(&self, names: &[Name]) {
        if self.slots.len() <= Self::MAX_IN_CACHE {
            return;
        }
        let read = |&name: &Name| self.slots[self.home(name)].position;
        std::hint::black_box(names.iter().fold(0, |seen, name| seen ^ read(name)));
    }

    /// Forgets a name.
    pub fn remove(&mut self, name: Name) {
        if let Ok(slot) = self.find(name) {
            self.empty(slot);
        }
    }

    /// Empties a slot, and moves there what could not be there before.
    fn empty(&mut self, slot: usize) {
        self.len -= 1;
        let (mut hole, mut next) = (slot, self.next(slot));
        while !self.slots[next].is_empty() {
            let home = self.home(self.slots[next].name);
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

    /// Forgets names of a part of the table, of so many parts, that are not to be kept.
    pub fn sweep(&mut self, part: usize, num_parts: usize, keeps: impl Fn(&Entry) -> bool) {
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

    /// Forgets every name.
    pub fn clear(&mut self) {
        self.slots.fill(Entry::EMPTY);
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn name(n: u32) -> Name {
        Name::of(Fingerprint(n))
    }

    /// Beside a map that does the same, in a table so full that names stand far from home.
    #[test]
    fn names_are_found_until_they_are_removed() {
        let mut names = Names::new(40);
        let mut expected = HashMap::new();
        let mut state = 1_u32;
        for step in 0..20_000 {
            state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            let n = 1 + (state >> 16) % 64;
            if state >> 12 & 1 == 0 {
                names.remove(name(n));
                expected.remove(&n);
            } else {
                match names.enter(name(n)) {
                    Some(entry) => {
                        assert_eq!(entry.bucket == Entry::NEW, !expected.contains_key(&n));
                        (entry.bucket, entry.position) = (1, step);
                        expected.insert(n, step);
                    }
                    None => assert_eq!((expected.len(), expected.get(&n)), (40, None)),
                }
            }
            assert_eq!(names.len(), expected.len());
        }
        for n in 1..=64 {
            let position = names.get_mut(name(n)).map(|entry| entry.position);
            assert_eq!(position, expected.get(&n).copied());
        }
    }

    #[test]
    fn a_sweep_of_all_parts_keeps_what_is_to_be_kept() {
        let mut names = Names::new(1000);
        for n in 1..=1000 {
            names.enter(name(n)).expect("a place").epoch = n as u16;
        }
        (0..7).for_each(|part| names.sweep(part, 7, |entry| entry.epoch % 2 == 0));
        // What moved behind the part that was swept is found in the next round.
        (0..7).for_each(|part| names.sweep(part, 7, |entry| entry.epoch % 2 == 0));
        assert_eq!(names.len(), 500);
        assert!((1..=1000).all(|n| names.get_mut(name(n)).is_some() == (n % 2 == 0)));
        names.clear();
        assert_eq!((names.len(), names.get_mut(name(2))), (0, None));
    }
}
