//! The prefix cache's hash table: from a key to the entries that have it, the first inserted
//! first.
//!
//! A slot holds the upper half of the key's hash beside the entry, so that a probe reads one array
//! only; the caller compares the full key of the one or two entries that a look-up yields. The
//! table has room for every block from the start and never grows while it serves blocks: no call
//! pays for a rehash.
//!
//! Between calls: each entry is either in exactly one slot or in the queue of duplicates behind
//! the entry that is; no slot on the way from an entry's home to its slot is empty.

use std::collections::VecDeque;

use crate::block::{BlockHash, CacheKey, GroupId};
use crate::slots::Slots;

/// What the index points at: a block, or a further key of a block. Never 0.
pub type Entry = u32;

/// The part of a key's hash that a slot holds, and that says where its home is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(u32);

impl Fingerprint {
    /// The fingerprint of a key. Mixes all bits, since hashes may also come from a caller who
    /// counts 1, 2, 3.
    #[inline]
    pub fn of(key: &CacheKey) -> Self {
        Self::of_parts(&key.hash, key.group)
    }

    /// The fingerprint of a hash in a group.
    #[inline]
    pub fn of_parts(&BlockHash([a, b, c, d]): &BlockHash, group: GroupId) -> Self {
        let group = u64::from(group).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let left = a ^ c.rotate_left(23) ^ 0x243f_6a88_85a3_08d3;
        let right = b ^ d.rotate_left(41) ^ group ^ 0x1319_8a2e_0370_7344;
        Self((folded_multiply(left, right) >> 32) as u32)
    }
}

fn folded_multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

type Slot = u64;
const EMPTY: Slot = 0;

fn slot_of(fingerprint: Fingerprint, entry: Entry) -> Slot {
    u64::from(fingerprint.0) << 32 | u64::from(entry)
}

fn entry_in(slot: Slot) -> Entry {
    slot as u32
}

fn fingerprint_in(slot: Slot) -> Fingerprint {
    Fingerprint((slot >> 32) as u32)
}

fn home(slots: &[Slot], fp: Fingerprint) -> usize {
    ((u64::from(fp.0) * slots.len() as u64) >> 32) as usize
}

fn after(slots: &[Slot], slot: usize) -> usize {
    if slot + 1 == slots.len() { 0 } else { slot + 1 }
}

/// Whether going up from behind `gap` to `i`, around the end of the table, passes `home`.
fn lies_behind(gap: usize, home: usize, i: usize) -> bool {
    if gap <= i { gap < home && home <= i } else { gap < home || home <= i }
}

/// From fingerprints to entries.
#[derive(Debug)]
pub struct HashIndex {
    slots: Slots,
    len: usize,
    max_len: usize,
    /// Later entries with the key of the entry in a slot, in the order of insertion.
    duplicates: hashbrown::HashMap<Entry, VecDeque<Entry>, foldhash::fast::FixedState>,
}

impl HashIndex {
    /// A table for up to `capacity` distinct keys without growth.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            slots: Slots::zeroed(Self::num_slots(capacity)),
            len: 0,
            max_len: capacity + 1,
            duplicates: hashbrown::HashMap::default(),
        }
    }

    /// Four slots a key: most probes end at the first. Seven for five keys where the table is large.
    fn num_slots(capacity: usize) -> usize {
        match capacity {
            0..Self::LARGE => capacity * 4 + 8,
            _ => capacity * 7 / 5 + 8,
        }
    }

    const LARGE: usize = 1 << 20;

    /// Number of distinct keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no key is in the index.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many keys to announce at once.
    pub const BATCH: usize = 32;

    /// Reads the homes of keys that are about to be looked for, so that the waits for memory
    /// overlap.
    #[inline]
    pub fn warm_up(&self, keys: impl Iterator<Item = Fingerprint>) {
        let slots = &*self.slots;
        std::hint::black_box(keys.fold(0, |seen, fp| seen ^ slots[home(slots, fp)]));
    }

    /// The first inserted entry for which `is_match` holds, among those with this fingerprint.
    pub fn find(&self, fp: Fingerprint, is_match: impl Fn(Entry) -> bool) -> Option<Entry> {
        self.find_slot(fp, is_match).map(|i| entry_in(self.slots[i]))
    }

    /// Every entry with the key of `first`, which is in a slot: the first inserted first.
    pub fn entries_of(&self, first: Entry) -> impl Iterator<Item = Entry> + '_ {
        let later = self.duplicates.get(&first).into_iter().flatten().copied();
        std::iter::once(first).chain(later)
    }

    /// Every entry that is served, in no particular order.
    pub fn first_entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.slots.iter().filter(|&&slot| slot != EMPTY).map(|&slot| entry_in(slot))
    }

    /// Adds an entry. `is_match` tells whether an entry has the same key. Returns whether the
    /// entry is a duplicate, standing behind an earlier one.
    pub fn insert(
        &mut self,
        fp: Fingerprint,
        entry: Entry,
        is_match: impl Fn(Entry) -> bool,
        fingerprint_of: impl Fn(Entry) -> Fingerprint,
    ) -> bool {
        if self.len == self.max_len {
            self.grow(fingerprint_of);
        }
        let slots = &mut *self.slots;
        let mut i = home(slots, fp);
        loop {
            let slot = slots[i];
            if slot == EMPTY {
                slots[i] = slot_of(fp, entry);
                self.len += 1;
                return false;
            }
            if fingerprint_in(slot) == fp && is_match(entry_in(slot)) {
                self.duplicates.entry(entry_in(slot)).or_default().push_back(entry);
                return true;
            }
            i = after(slots, i);
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
            return self.remove_first(fp, entry);
        }
        self.remove_duplicate(first, entry);
        None
    }

    /// As [`Self::remove`], for an entry that is no duplicate: found without comparing keys.
    pub fn remove_first(&mut self, fp: Fingerprint, entry: Entry) -> Option<Entry> {
        let slots = &mut *self.slots;
        let wanted = slot_of(fp, entry);
        let mut i = home(slots, fp);
        while slots[i] != wanted {
            if slots[i] == EMPTY {
                return None;
            }
            i = after(slots, i);
        }
        if self.duplicates.is_empty() {
            self.len -= 1;
            vacate(slots, i);
            return None;
        }
        self.hand_over(i, fp, entry)
    }

    /// Puts the next entry with the same key in the slot of one that leaves.
    fn hand_over(&mut self, slot: usize, fp: Fingerprint, entry: Entry) -> Option<Entry> {
        let heir = self.next_in_line(entry);
        match heir {
            Some(heir) => self.slots[slot] = slot_of(fp, heir),
            None => {
                self.len -= 1;
                vacate(&mut self.slots, slot);
            }
        }
        heir
    }

    fn next_in_line(&mut self, first: Entry) -> Option<Entry> {
        let mut line = self.duplicates.remove(&first)?;
        let heir = line.pop_front();
        if let (Some(heir), false) = (heir, line.is_empty()) {
            self.duplicates.insert(heir, line);
        }
        heir
    }

    fn remove_duplicate(&mut self, first: Entry, entry: Entry) {
        let Some(line) = self.duplicates.get_mut(&first) else { return };
        line.retain(|&other| other != entry);
        if line.is_empty() {
            self.duplicates.remove(&first);
        }
    }

    /// Forgets every entry.
    pub fn clear(&mut self) {
        self.slots.fill(EMPTY);
        self.duplicates.clear();
        self.len = 0;
    }

    fn find_slot(&self, fp: Fingerprint, is_match: impl Fn(Entry) -> bool) -> Option<usize> {
        let slots = &*self.slots;
        let mut i = home(slots, fp);
        loop {
            let slot = slots[i];
            if slot == EMPTY {
                return None;
            }
            if fingerprint_in(slot) == fp && is_match(entry_in(slot)) {
                return Some(i);
            }
            i = after(slots, i);
        }
    }

    fn put(&mut self, fp: Fingerprint, entry: Entry) {
        let slots = &mut *self.slots;
        let mut i = home(slots, fp);
        while slots[i] != EMPTY {
            i = after(slots, i);
        }
        slots[i] = slot_of(fp, entry);
    }

    /// Only further keys of blocks can outnumber the blocks, so this runs at most a few times in
    /// the life of a tiny pool.
    fn grow(&mut self, fingerprint_of: impl Fn(Entry) -> Fingerprint) {
        let entries: Vec<Entry> = self.first_entries().collect();
        let capacity = self.len * 2 + 8;
        self.slots = Slots::zeroed(Self::num_slots(capacity));
        self.max_len = capacity;
        for entry in entries {
            self.put(fingerprint_of(entry), entry);
        }
    }
}

/// Empties a slot and closes the gap: entries behind it move up unless that would put them before
/// their home.
fn vacate(slots: &mut [Slot], slot: usize) {
    let mut gap = slot;
    let mut i = gap;
    loop {
        i = after(slots, i);
        let moving = slots[i];
        if moving == EMPTY {
            slots[gap] = EMPTY;
            return;
        }
        if !lies_behind(gap, home(slots, fingerprint_in(moving)), i) {
            slots[gap] = moving;
            gap = i;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index over keys that are small numbers; entry `e` has key `keys[e]`.
    struct Fixture {
        keys: Vec<u64>,
        index: HashIndex,
    }

    impl Fixture {
        fn new(keys: &[u64], capacity: usize) -> Self {
            Self { keys: keys.to_vec(), index: HashIndex::with_capacity(capacity) }
        }

        fn fp(key: u64) -> Fingerprint {
            Fingerprint::of(&CacheKey { hash: BlockHash([key, 0, 0, 0]), group: 0 })
        }

        fn insert(&mut self, entry: Entry) -> bool {
            let keys = &self.keys;
            let key = keys[entry as usize];
            self.index.insert(
                Self::fp(key),
                entry,
                |e| keys[e as usize] == key,
                |e| Self::fp(keys[e as usize]),
            )
        }

        fn remove(&mut self, entry: Entry) -> Option<Entry> {
            let keys = &self.keys;
            let key = keys[entry as usize];
            self.index.remove(Self::fp(key), entry, |e| keys[e as usize] == key)
        }

        fn find(&self, key: u64) -> Option<Entry> {
            self.index.find(Self::fp(key), |e| self.keys[e as usize] == key)
        }
    }

    #[test]
    fn the_first_inserted_entry_is_served_and_the_next_one_inherits() {
        let mut t = Fixture::new(&[0, 7, 7, 7, 8], 4);
        assert!(!t.insert(3));
        assert!(t.insert(1));
        assert!(t.insert(2));
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
