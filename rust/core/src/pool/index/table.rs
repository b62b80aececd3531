//! The hash table of the prefix cache. It maps a key to the entries that have it, in the order of
//! insertion.
//!
//! A line of eight slots is one cache line. Each slot has an entry and the fingerprint of its key.
//! So a probe reads one line, and the caller compares the full keys of the one or two entries with
//! the fingerprint. The keys of one hash in several groups share a line. The table is large enough
//! for every block from the start, so that no call pays for a rehash.
//!
//! Between calls, these rules hold:
//!
//! - Each entry is in exactly one slot, or it is a duplicate of an entry in a slot.
//! - Each line counts the entries that went to a later line because it was full.

use prefetch_index::prefetch_index;

use super::duplicates::Duplicates;
use super::line::{Entry, Line, NONE};
use super::line_layout::{Home, LineLayout, home_slot};
use super::lines::Lines;
use crate::pool::blocks::{Fingerprint, KeyLayout};

/// Maps fingerprints to entries.
#[derive(Debug)]
pub(super) struct HashTable {
    keys: KeyLayout,
    layout: LineLayout,
    lines: Lines,
    /// For each line, the number of entries that went to a later line because this one was full. A
    /// count that reaches [`CROWDED`] stays there.
    num_overflowed: Vec<u8>,
    len: usize,
    max_len: usize,
    duplicates: Duplicates,
}

impl HashTable {
    /// Creates a table that holds up to `capacity` distinct keys without growth.
    pub(super) fn with_capacity(capacity: usize, keys: KeyLayout) -> Self {
        let layout = LineLayout::new(keys, capacity);
        Self {
            keys,
            layout,
            lines: Lines::zeroed(layout.num_lines()),
            num_overflowed: vec![0; layout.num_lines()],
            len: 0,
            max_len: capacity + 1,
            duplicates: Duplicates::default(),
        }
    }

    /// Returns the number of lines. If it changes, every [`Home`] is invalid.
    pub(super) fn num_lines(&self) -> usize {
        self.num_overflowed.len()
    }

    /// Returns the number of distinct keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of keys that are handled at once.
    pub(super) const BATCH: usize = 64;

    /// Prefetches the lines of keys that will be looked for next.
    #[inline]
    pub(super) fn prefetch(&self, keys: impl Iterator<Item = Home> + Clone) {
        let lines = &*self.lines;
        keys.clone().for_each(|key| prefetch_index(lines, key.line as usize));
        if self.layout.is_dense() {
            let passed = keys.filter(|key| self.num_overflowed[key.line as usize] > 0);
            let second = |key: Home| self.layout.second(key.fingerprint);
            passed.for_each(|key| prefetch_index(lines, second(key)));
        }
    }

    /// Returns the entry in the home slot of a key. This is nearly always the key's own entry.
    #[inline]
    pub(super) fn home_entry(&self, key: Home) -> Entry {
        self.lines[key.line as usize].entries[home_slot(key.fingerprint)]
    }

    /// Returns the line where a key is looked for first.
    #[inline]
    pub(super) fn home(&self, fingerprint: Fingerprint) -> Home {
        Home { fingerprint, line: self.layout.home(fingerprint) as u32 }
    }

    /// Returns the first inserted entry with a fingerprint for which `is_match` holds.
    #[inline]
    pub(super) fn find(&self, fp: Fingerprint, is_match: impl Fn(Entry) -> bool) -> Option<Entry> {
        let lines = &*self.lines;
        let line = self.layout.home(fp);
        let best = lines[line].entries[home_slot(fp)];
        if lines[line].fingerprints[home_slot(fp)] == fp.0 && best != NONE && is_match(best) {
            return Some(best);
        }
        if let Some(entry) = lines[line].find(fp, &is_match) {
            return Some(entry);
        }
        match self.num_overflowed[line] {
            0 => None,
            _ => self.find_behind(fp, is_match),
        }
    }

    /// Returns the lines to which a key can go, in order: its home, then all lines from the key's
    /// second line on.
    fn path(&self, fp: Fingerprint) -> impl Iterator<Item = usize> + use<> {
        let num_lines = self.lines.len();
        let second = self.layout.second(fp);
        let home = self.layout.home(fp);
        std::iter::once(home).chain((second..num_lines).chain(0..second))
    }

    #[cold]
    fn find_behind(&self, fp: Fingerprint, is_match: impl Fn(Entry) -> bool) -> Option<Entry> {
        for line in self.path(fp).skip(1) {
            if let Some(entry) = self.lines[line].find(fp, &is_match) {
                return Some(entry);
            }
            if self.num_overflowed[line] == 0 {
                return None;
            }
        }
        None
    }

    /// Returns every entry with the key of `first`, in the order of insertion. `first` must be in a
    /// slot.
    pub(super) fn entries_of(&self, first: Entry) -> impl Iterator<Item = Entry> + '_ {
        std::iter::once(first).chain(self.duplicates.of(first))
    }

    /// Returns every entry in a slot, in no particular order.
    pub(super) fn first_entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.lines.iter().flat_map(|line| line.entries).filter(|&entry| entry != NONE)
    }

    /// Adds an entry. `is_match` returns whether an entry has the same key. If the new entry is a
    /// duplicate, returns the entry that serves the key.
    #[inline]
    pub(super) fn insert(
        &mut self,
        home: Home,
        entry: Entry,
        is_match: impl Fn(Entry) -> bool,
        fingerprint_of: impl Fn(Entry) -> Fingerprint,
    ) -> Option<Entry> {
        match self.insert_each(&[home], &[entry]) {
            0 => self.insert_anywhere(home.fingerprint, entry, is_match, fingerprint_of),
            _ => None,
        }
    }

    /// Adds one entry after another to the home line of its key. Stops at an entry whose key
    /// another entry can have, or whose line is full. Returns the number of added entries.
    #[inline(never)]
    pub(super) fn insert_each(&mut self, homes: &[Home], entries: &[Entry]) -> usize {
        let n = entries.len().min(self.max_len - self.len);
        let (entries, homes) = (&entries[..n], &homes[..n]);
        let lines = &mut *self.lines;
        // Both have the same length, so one check of a line is enough.
        let num_overflowed = &self.num_overflowed[..lines.len()];
        let other = homes.iter().zip(entries).position(|(home, &entry)| {
            let line = &mut lines[home.line as usize];
            num_overflowed[home.line as usize] > 0 || !line.enter(home.fingerprint, entry)
        });
        let num_added = other.unwrap_or(n);
        self.len += num_added;
        num_added
    }

    #[cold]
    fn insert_anywhere(
        &mut self,
        fp: Fingerprint,
        entry: Entry,
        is_match: impl Fn(Entry) -> bool,
        fingerprint_of: impl Fn(Entry) -> Fingerprint,
    ) -> Option<Entry> {
        if let Some(first) = self.find(fp, is_match) {
            self.duplicates.push(first, entry);
            return Some(first);
        }
        if self.len == self.max_len {
            self.grow(fingerprint_of);
        }
        self.put(fp, entry);
        self.len += 1;
        None
    }

    /// Puts an entry into the first line of its path that has an empty slot.
    fn put(&mut self, fp: Fingerprint, entry: Entry) {
        for line in self.path(fp) {
            if let Some(slot) = self.lines[line].empty_slot(fp) {
                self.lines[line].put(slot, fp, entry);
                return;
            }
            if self.num_overflowed[line] != CROWDED {
                self.num_overflowed[line] += 1;
            }
        }
    }

    /// Removes an entry. If it served its key, returns the next duplicate, which serves the key
    /// from now on.
    pub(super) fn remove(
        &mut self,
        fp: Fingerprint,
        entry: Entry,
        is_match: impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        let first = self.find(fp, is_match)?;
        if first == entry {
            return self.remove_first(self.home(fp), entry);
        }
        self.duplicates.remove(first, entry);
        None
    }

    /// Does the same as [`Self::remove`] for an entry that serves its key, without comparing keys.
    #[inline]
    pub(super) fn remove_first(&mut self, home: Home, entry: Entry) -> Option<Entry> {
        match self.remove_each(&[(entry, home)]) {
            0 => self.remove_anywhere(home.fingerprint, entry),
            _ => None,
        }
    }

    /// Removes entries that serve their keys, one after another. Stops at an entry that has a
    /// duplicate or is not on the home line of its key. Returns the number of removed entries.
    pub(super) fn remove_each(&mut self, entries: &[(Entry, Home)]) -> usize {
        let is_alone = |(entry, _): &&(Entry, Home)| !self.duplicates.has(*entry);
        let num_alone = match self.duplicates.is_empty() {
            true => entries.len(),
            false => entries.iter().take_while(is_alone).count(),
        };
        let lines = &mut *self.lines;
        let left = entries[..num_alone]
            .iter()
            .map(|&(entry, home)| lines[home.line as usize].leave(home.fingerprint, entry));
        let num_removed = left.take_while(|&is_removed| is_removed).count();
        self.len -= num_removed;
        num_removed
    }

    fn remove_anywhere(&mut self, fp: Fingerprint, entry: Entry) -> Option<Entry> {
        let (line, slot) = self.slot_of(fp, entry)?;
        let next_duplicate =
            if self.duplicates.is_empty() { None } else { self.duplicates.replace(entry) };
        if let Some(next_duplicate) = next_duplicate {
            self.lines[line].entries[slot] = next_duplicate;
        } else {
            self.lines[line].empty(slot);
            self.len -= 1;
            for before in self.path(fp).take_while(|&before| before != line) {
                if self.num_overflowed[before] != CROWDED {
                    self.num_overflowed[before] -= 1;
                }
            }
        }
        next_duplicate
    }

    /// Returns the line and slot of an entry.
    fn slot_of(&self, fp: Fingerprint, entry: Entry) -> Option<(usize, usize)> {
        for line in self.path(fp) {
            if let Some(slot) = self.lines[line].slot_of(entry) {
                return Some((line, slot));
            }
            if self.num_overflowed[line] == 0 {
                return None;
            }
        }
        None
    }

    /// Removes every entry.
    pub(super) fn clear(&mut self) {
        self.lines.fill(Line::default());
        self.num_overflowed.fill(0);
        self.duplicates.clear();
        self.len = 0;
    }

    /// Doubles the table. Only alias keys can make keys outnumber blocks, so this runs at most a
    /// few times in the life of a tiny pool.
    fn grow(&mut self, fingerprint_of: impl Fn(Entry) -> Fingerprint) {
        let entries: Vec<Entry> = self.first_entries().collect();
        self.max_len = self.len * 2 + 8;
        self.layout = LineLayout::new(self.keys, self.max_len);
        self.lines = Lines::zeroed(self.layout.num_lines());
        self.num_overflowed = vec![0; self.layout.num_lines()];
        for entry in entries {
            self.put(fingerprint_of(entry), entry);
        }
    }
}

/// The largest count of overflowed entries. A count that reaches it never falls.
const CROWDED: u8 = u8::MAX;

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;
    use crate::block::BlockHash;

    fn fingerprint(key: u64) -> Fingerprint {
        KeyLayout::new(1).fingerprint(&BlockHash([key, 0, 0, 0]), 0)
    }

    fn index(capacity: usize) -> HashTable {
        HashTable::with_capacity(capacity, KeyLayout::new(1))
    }

    #[test]
    fn a_large_table_finds_what_went_past_full_lines_until_it_is_removed() {
        let layout = KeyLayout::new(6);
        let mixer = foldhash::fast::FixedState::default();
        let fingerprint = |entry: Entry| {
            let (hash, group) = (mixer.hash_one(entry / 6), entry % 6);
            layout.fingerprint(&BlockHash([hash, 0, 0, 0]), group as u16)
        };
        let capacity = LineLayout::LARGE;
        let mut index = HashTable::with_capacity(capacity, layout);
        let all = 1..=capacity as Entry;
        for entry in all.clone() {
            let home = index.home(fingerprint(entry));
            assert_eq!(index.insert(home, entry, |other| other == entry, fingerprint), None);
        }
        let num_passed = index.num_overflowed.iter().filter(|&&passed| passed > 0).count();
        assert!(num_passed > capacity / 1000, "{num_passed}");
        let (stays, goes) = (all.clone().step_by(2), all.clone().skip(1).step_by(2));
        for entry in goes.clone() {
            assert_eq!(index.remove(fingerprint(entry), entry, |other| other == entry), None);
        }
        let found = |index: &HashTable, e: Entry| index.find(fingerprint(e), |other| other == e);
        assert!(stays.clone().all(|entry| found(&index, entry) == Some(entry)));
        assert!(goes.clone().all(|entry| found(&index, entry).is_none()));
        for entry in stays {
            index.remove_first(index.home(fingerprint(entry)), entry);
        }
        assert!(index.len() == 0 && index.first_entries().next().is_none());
        assert!(index.num_overflowed.iter().all(|&passed| passed == 0 || passed == CROWDED));
    }

    /// An index whose keys are small numbers. Entry `e` has the key `keys[e]`.
    struct Fixture {
        keys: Vec<u64>,
        index: HashTable,
    }

    impl Fixture {
        fn new(keys: &[u64], capacity: usize) -> Self {
            Self { keys: keys.to_vec(), index: index(capacity) }
        }

        fn insert(&mut self, entry: Entry) -> Option<Entry> {
            let keys = &self.keys;
            let key = keys[entry as usize];
            self.index.insert(
                self.index.home(fingerprint(key)),
                entry,
                |e| keys[e as usize] == key,
                |e| fingerprint(keys[e as usize]),
            )
        }

        fn remove(&mut self, entry: Entry) -> Option<Entry> {
            let keys = &self.keys;
            let key = keys[entry as usize];
            self.index.remove(fingerprint(key), entry, |e| keys[e as usize] == key)
        }

        fn find(&self, key: u64) -> Option<Entry> {
            self.index.find(fingerprint(key), |e| self.keys[e as usize] == key)
        }
    }

    #[test]
    fn the_first_inserted_entry_serves_a_key_and_then_the_next() {
        let mut t = Fixture::new(&[0, 7, 7, 7, 8], 4);
        assert_eq!([3, 1, 2].map(|entry| t.insert(entry)), [None, Some(3), Some(3)]);
        assert_eq!(t.find(7), Some(3));
        assert_eq!(t.index.entries_of(3).collect::<Vec<_>>(), [3, 1, 2]);
        assert_eq!(t.remove(1), None);
        assert_eq!(t.remove(3), Some(2));
        assert_eq!(t.find(7), Some(2));
        assert_eq!(t.remove(2), None);
        assert_eq!(t.find(7), None);
        assert!(t.index.len() == 0);
    }

    #[test]
    fn keys_leave_and_come_back_at_once_beside_one_with_a_duplicate() {
        let mut t = Fixture::new(&[0, 7, 7, 8, 9], 40);
        assert_eq!([1, 2, 3, 4].map(|entry| t.insert(entry)), [None, Some(1), None, None]);
        let home = |t: &Fixture, key| t.index.home(fingerprint(key));
        let left = [(3, home(&t, 8)), (4, home(&t, 9)), (1, home(&t, 7))];
        assert_eq!(t.index.remove_each(&left), 2);
        assert_eq!([7, 8, 9].map(|key| t.find(key)), [Some(1), None, None]);
        assert_eq!(t.index.insert_each(&[home(&t, 8), home(&t, 9)], &[3, 4]), 2);
        assert_eq!([7, 8, 9].map(|key| t.find(key)), [Some(1), Some(3), Some(4)]);
    }

    #[test]
    fn keys_of_more_groups_than_slots_are_found_wherever_their_lines_are() {
        for num_groups in [20, 200] {
            let layout = KeyLayout::new(num_groups);
            let hash = |n: Entry| BlockHash([u64::from(n), 0, 0, 0]);
            let group = |n: Entry| (n as usize * 7 % num_groups) as u16;
            let key = |n: Entry| layout.fingerprint(&hash(n), group(n));
            let mut index = HashTable::with_capacity(4, layout);
            for n in 1..800 {
                index.insert(index.home(key(n)), n, |e| e == n, key);
            }
            assert!((1..800).all(|n| index.find(key(n), |e| e == n) == Some(n)));
        }
    }

    #[test]
    fn lines_that_are_full_pass_entries_on_and_take_the_next_ones() {
        let mut index = index(100);
        let fp = fingerprint(1);
        let find = |index: &HashTable, wanted| index.find(fp, |entry| entry == wanted);
        for entry in 1..=60 {
            assert!(index.insert(index.home(fp), entry, |other| other == entry, |_| fp).is_none());
        }
        assert!((1..=60).all(|entry| find(&index, entry) == Some(entry)));
        for entry in (1..=60).filter(|entry| entry % 3 > 0) {
            assert_eq!(index.remove(fp, entry, |other| other == entry), None);
        }
        assert!((1..=60).all(|entry| find(&index, entry) == (entry % 3 == 0).then_some(entry)));
        for entry in (3..=60).step_by(3) {
            index.remove_first(index.home(fp), entry);
        }
        assert!(index.len() == 0 && index.num_overflowed.iter().all(|&passed| passed == 0));
    }

    #[test]
    fn a_crowded_line_stays_crowded() {
        let mut index = index(1000);
        let fp = fingerprint(1);
        for entry in 1..=300 {
            index.insert(index.home(fp), entry, |other| other == entry, |_| fp);
        }
        for entry in 1..300 {
            index.remove_first(index.home(fp), entry);
        }
        assert_eq!(index.find(fp, |entry| entry == 300), Some(300));
        assert_eq!(index.len(), 1);
    }
}
