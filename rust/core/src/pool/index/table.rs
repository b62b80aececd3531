//! The prefix cache's hash table: from a key to the entries that have it, the first inserted
//! first.
//!
//! A line of eight slots is one cache line; each slot holds an entry and the fingerprint of its
//! key, so that a probe reads one line only, and the caller compares the full key of the one or
//! two entries that a look-up yields. The keys of one hash in several groups share a line. The
//! table has room for every block from the start and never grows while it serves blocks: no call
//! pays for a rehash.
//!
//! Between calls: each entry is either in exactly one slot or in the queue of duplicates behind
//! the entry that is; each line counts the entries that passed it for want of room.

use prefetch_index::prefetch_index;

use super::duplicates::Duplicates;
use super::line::{Entry, Line, NONE};
use super::line_layout::{LineLayout, home_slot};
use super::lines::Lines;
use super::simple_changes::{Place, SimpleChanges};
use crate::pool::blocks::fingerprint::{Fingerprint, KeyLayout};

/// From fingerprints to entries.
#[derive(Debug)]
pub struct HashTable {
    keys: KeyLayout,
    layout: LineLayout,
    lines: Lines,
    /// For each line, the entries that stand behind it although they belong to it or to one
    /// before it. [`CROWDED`] means that many or more, for good.
    passed: Vec<u8>,
    len: usize,
    max_len: usize,
    duplicates: Duplicates,
}

impl HashTable {
    /// A table for up to `capacity` distinct keys without growth.
    pub fn with_capacity(capacity: usize, keys: KeyLayout) -> Self {
        let layout = LineLayout::new(keys, capacity);
        Self {
            keys,
            layout,
            lines: Lines::zeroed(layout.num_lines()),
            passed: vec![0; layout.num_lines()],
            len: 0,
            max_len: capacity + 1,
            duplicates: Duplicates::default(),
        }
    }

    /// Size of the table. Another one makes every [`Place`] void.
    pub fn num_lines(&self) -> usize {
        self.passed.len()
    }

    /// Number of distinct keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no key is in the index.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many keys to announce at once.
    pub const BATCH: usize = 64;

    /// Asks for the lines of keys that are about to be looked for, so that the waits for memory
    /// overlap, also with what is done until then.
    #[inline]
    pub fn prefetch(&self, keys: impl Iterator<Item = Place> + Clone) {
        let lines = &*self.lines;
        keys.clone().for_each(|key| prefetch_index(lines, key.line as usize));
        if self.layout.is_dense() {
            let passed = keys.filter(|key| self.passed[key.line as usize] > 0);
            let second = |key: Place| self.layout.second(key.fingerprint);
            passed.for_each(|key| prefetch_index(lines, second(key)));
        }
    }

    /// The entry that stands where that of a key does nearly always.
    #[inline]
    pub fn likely(&self, key: Place) -> Entry {
        self.lines[key.line as usize].entries[home_slot(key.fingerprint)]
    }

    /// Where to look for the key with a fingerprint.
    #[inline]
    pub fn place(&self, fingerprint: Fingerprint) -> Place {
        Place { fingerprint, line: self.layout.home(fingerprint) as u32 }
    }

    /// For changes that concern one line alone.
    #[inline]
    pub fn simple_changes(&mut self) -> SimpleChanges<'_> {
        SimpleChanges {
            lines: &mut self.lines,
            passed: &self.passed,
            len: &mut self.len,
            max_len: self.max_len,
            has_duplicates: !self.duplicates.is_empty(),
        }
    }

    /// The first inserted entry for which `is_match` holds, among those with this fingerprint.
    #[inline]
    pub fn find(&self, fp: Fingerprint, is_match: impl Fn(Entry) -> bool) -> Option<Entry> {
        let lines = &*self.lines;
        let line = self.layout.home(fp);
        let best = lines[line].entries[home_slot(fp)];
        if lines[line].fingerprints[home_slot(fp)] == fp.0 && best != NONE && is_match(best) {
            return Some(best);
        }
        if lines[line].may_have(fp)
            && let Some(entry) = lines[line].entry_with(fp, &is_match)
        {
            return Some(entry);
        }
        match self.passed[line] {
            0 => None,
            _ => self.find_behind(fp, is_match),
        }
    }

    /// The lines to which a key may go, first to last: its own, then from any other one on all
    /// that there are.
    fn path(&self, fp: Fingerprint) -> impl Iterator<Item = usize> + use<> {
        let num_lines = self.lines.len();
        let second = self.layout.second(fp);
        let home = self.layout.home(fp);
        std::iter::once(home).chain((second..num_lines).chain(0..second))
    }

    #[cold]
    fn find_behind(&self, fp: Fingerprint, is_match: impl Fn(Entry) -> bool) -> Option<Entry> {
        for line in self.path(fp).skip(1) {
            if self.lines[line].may_have(fp)
                && let Some(entry) = self.lines[line].entry_with(fp, &is_match)
            {
                return Some(entry);
            }
            if self.passed[line] == 0 {
                return None;
            }
        }
        None
    }

    /// Every entry with the key of `first`, which is in a slot: the first inserted first.
    pub fn entries_of(&self, first: Entry) -> impl Iterator<Item = Entry> + '_ {
        std::iter::once(first).chain(self.duplicates.behind(first))
    }

    /// Every entry that is served, in no particular order.
    pub fn first_entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.lines.iter().flat_map(|line| line.entries).filter(|&entry| entry != NONE)
    }

    /// Adds an entry. `is_match` tells whether an entry has the same key. Returns the entry that is
    /// served in its place, if it is a duplicate, standing behind an earlier one.
    #[inline]
    pub fn insert(
        &mut self,
        key: Place,
        entry: Entry,
        is_match: impl Fn(Entry) -> bool,
        fingerprint_of: impl Fn(Entry) -> Fingerprint,
    ) -> Option<Entry> {
        match self.simple_changes().insert(key, entry) {
            true => None,
            false => self.insert_with_care(key.fingerprint, entry, is_match, fingerprint_of),
        }
    }

    #[cold]
    fn insert_with_care(
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

    /// Puts an entry in the first line of its path with an empty slot.
    fn put(&mut self, fp: Fingerprint, entry: Entry) {
        for line in self.path(fp) {
            if let Some(slot) = self.lines[line].empty_slot(fp) {
                self.lines[line].put(slot, fp, entry);
                return;
            }
            if self.passed[line] != CROWDED {
                self.passed[line] += 1;
            }
        }
    }

    /// Removes an entry. Returns the entry that is served in its place from now on, if there is a
    /// change: the next inserted one with the same key.
    pub fn remove(
        &mut self,
        fp: Fingerprint,
        entry: Entry,
        is_match: impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        let first = self.find(fp, is_match)?;
        if first == entry {
            return self.remove_first(self.place(fp), entry);
        }
        self.duplicates.remove(first, entry);
        None
    }

    /// As [`Self::remove`], for an entry that is no duplicate: found without comparing keys.
    #[inline]
    pub fn remove_first(&mut self, key: Place, entry: Entry) -> Option<Entry> {
        match self.simple_changes().remove(key, entry) {
            true => None,
            false => self.remove_with_care(key.fingerprint, entry),
        }
    }

    fn remove_with_care(&mut self, fp: Fingerprint, entry: Entry) -> Option<Entry> {
        let (line, slot) = self.place_of(fp, entry)?;
        let next_duplicate =
            if self.duplicates.is_empty() { None } else { self.duplicates.succeed(entry) };
        self.lines[line].entries[slot] = next_duplicate.unwrap_or(NONE);
        if next_duplicate.is_none() {
            self.len -= 1;
            for passed in self.path(fp).take_while(|&before| before != line) {
                if self.passed[passed] != CROWDED {
                    self.passed[passed] -= 1;
                }
            }
        }
        next_duplicate
    }

    /// The line and slot in which an entry stands.
    fn place_of(&self, fp: Fingerprint, entry: Entry) -> Option<(usize, usize)> {
        for line in self.path(fp) {
            if let Some(slot) = self.lines[line].slot_of(entry) {
                return Some((line, slot));
            }
            if self.passed[line] == 0 {
                return None;
            }
        }
        None
    }

    /// Forgets every entry.
    pub fn clear(&mut self) {
        self.lines.fill(Line::default());
        self.passed.fill(0);
        self.duplicates.clear();
        self.len = 0;
    }

    /// Only alias keys of blocks can outnumber the blocks, so this runs at most a few times in
    /// the life of a tiny pool.
    fn grow(&mut self, fingerprint_of: impl Fn(Entry) -> Fingerprint) {
        let entries: Vec<Entry> = self.first_entries().collect();
        self.max_len = self.len * 2 + 8;
        self.layout = LineLayout::new(self.keys, self.max_len);
        self.lines = Lines::zeroed(self.layout.num_lines());
        self.passed = vec![0; self.layout.num_lines()];
        for entry in entries {
            self.put(fingerprint_of(entry), entry);
        }
    }
}

/// A line that so many entries have passed is never again known to be passed by none.
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
    fn a_large_table_finds_what_went_past_full_lines_and_forgets_it_without_a_trace() {
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
            let place = index.place(fingerprint(entry));
            assert_eq!(index.insert(place, entry, |other| other == entry, fingerprint), None);
        }
        let num_passed = index.passed.iter().filter(|&&passed| passed > 0).count();
        assert!(num_passed > capacity / 1000, "{num_passed}");
        let (stays, goes) = (all.clone().step_by(2), all.clone().skip(1).step_by(2));
        for entry in goes.clone() {
            assert_eq!(index.remove(fingerprint(entry), entry, |other| other == entry), None);
        }
        let found = |index: &HashTable, e: Entry| index.find(fingerprint(e), |other| other == e);
        assert!(stays.clone().all(|entry| found(&index, entry) == Some(entry)));
        assert!(goes.clone().all(|entry| found(&index, entry).is_none()));
        for entry in stays {
            index.remove_first(index.place(fingerprint(entry)), entry);
        }
        assert!(index.is_empty() && index.first_entries().next().is_none());
        assert!(index.passed.iter().all(|&passed| passed == 0 || passed == CROWDED));
    }

    /// An index over keys that are small numbers; entry `e` has key `keys[e]`.
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
                self.index.place(fingerprint(key)),
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
    fn the_first_inserted_entry_is_served_and_the_next_one_inherits() {
        let mut t = Fixture::new(&[0, 7, 7, 7, 8], 4);
        assert_eq!([3, 1, 2].map(|entry| t.insert(entry)), [None, Some(3), Some(3)]);
        assert_eq!(t.find(7), Some(3));
        assert_eq!(t.index.entries_of(3).collect::<Vec<_>>(), [3, 1, 2]);
        assert_eq!(t.remove(1), None);
        assert_eq!(t.remove(3), Some(2));
        assert_eq!(t.find(7), Some(2));
        assert_eq!(t.remove(2), None);
        assert_eq!(t.find(7), None);
        assert!(t.index.is_empty());
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
                index.insert(index.place(key(n)), n, |e| e == n, key);
            }
            assert!((1..800).all(|n| index.find(key(n), |e| e == n) == Some(n)));
        }
    }

    #[test]
    fn removal_keeps_every_other_key_reachable() {
        let keys: Vec<u64> = (0..400).collect();
        let mut t = Fixture::new(&keys, 400);
        for e in 1..400 {
            t.insert(e);
        }
        for e in (1..400).step_by(3) {
            t.remove(e);
        }
        for e in 1..400 {
            let expected = (e % 3 != 1).then_some(e);
            assert_eq!(t.find(u64::from(e)), expected, "entry {e}");
        }
    }

    #[test]
    fn lines_that_are_full_pass_entries_on_and_take_the_next_ones() {
        let mut index = index(100);
        let fp = fingerprint(1);
        let find = |index: &HashTable, wanted| index.find(fp, |entry| entry == wanted);
        for entry in 1..=60 {
            assert!(index.insert(index.place(fp), entry, |other| other == entry, |_| fp).is_none());
        }
        assert!((1..=60).all(|entry| find(&index, entry) == Some(entry)));
        for entry in (1..=60).filter(|entry| entry % 3 > 0) {
            assert_eq!(index.remove(fp, entry, |other| other == entry), None);
        }
        assert!((1..=60).all(|entry| find(&index, entry) == (entry % 3 == 0).then_some(entry)));
        for entry in (3..=60).step_by(3) {
            index.remove_first(index.place(fp), entry);
        }
        assert!(index.is_empty() && index.passed.iter().all(|&passed| passed == 0));
    }

    #[test]
    fn a_crowded_line_stays_crowded() {
        let mut index = index(1000);
        let fp = fingerprint(1);
        for entry in 1..=300 {
            index.insert(index.place(fp), entry, |other| other == entry, |_| fp);
        }
        for entry in 1..300 {
            index.remove_first(index.place(fp), entry);
        }
        assert_eq!(index.find(fp, |entry| entry == 300), Some(300));
        assert_eq!(index.len(), 1);
    }

    #[test]
    fn an_index_grows_beyond_its_capacity() {
        let keys: Vec<u64> = (0..100).collect();
        let mut t = Fixture::new(&keys, 1);
        for e in 1..100 {
            t.insert(e);
        }
        assert!((1..100).all(|e| t.find(u64::from(e)) == Some(e)));
        assert_eq!(t.index.len(), 99);
    }
}
