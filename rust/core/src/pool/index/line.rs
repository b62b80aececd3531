//! One line of the hash table: eight slots, each with an entry and the fingerprint of its key.

use bytemuck::{Pod, Zeroable};

use super::line_layout::{LINE_LEN, home_slot};
use crate::pool::blocks::Fingerprint;

/// The content of a slot: a block, or an alias key of a block. Never 0.
pub(super) type Entry = u32;

/// The entry of an empty slot.
pub(super) const NONE: Entry = 0;

/// Eight slots of a hash table: one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Line {
    pub(super) fingerprints: [u32; LINE_LEN],
    /// The entries; 0 in an empty slot.
    pub(super) entries: [u32; LINE_LEN],
}

/// Searches a line. The searches compare all slots at once, without a branch for each.
impl Line {
    /// Returns whether a slot can have an entry with this fingerprint. Empty slots seem to have the
    /// fingerprint 0.
    #[inline]
    fn may_have(&self, fp: Fingerprint) -> bool {
        self.fingerprints.iter().fold(false, |any, &other| any | (other == fp.0))
    }

    /// Returns the first entry with this fingerprint for which `is_match` holds.
    #[inline]
    pub(super) fn find(&self, fp: Fingerprint, is_match: impl Fn(Entry) -> bool) -> Option<Entry> {
        if self.may_have(fp) { self.entry_with(fp, is_match) } else { None }
    }

    #[inline(never)]
    fn entry_with(&self, fp: Fingerprint, is_match: impl Fn(Entry) -> bool) -> Option<Entry> {
        let slots = self.fingerprints.iter().zip(self.entries);
        let mut candidates = slots.filter(|(other, entry)| **other == fp.0 && *entry != NONE);
        candidates.find(|&(_, entry)| is_match(entry)).map(|(_, entry)| entry)
    }

    /// Returns an empty slot: the key's home slot, or else the last empty slot of the line. Fewer
    /// keys have their home slot at the end of a line.
    #[inline]
    pub(super) fn empty_slot(&self, fp: Fingerprint) -> Option<usize> {
        match self.entries[home_slot(fp)] {
            NONE => Some(home_slot(fp)),
            _ => self.slot_of(NONE),
        }
    }

    /// Puts an entry into an empty slot. Does nothing if no slot is empty, or if a slot can have an
    /// entry with this fingerprint. Returns whether it did.
    #[inline]
    pub(super) fn enter(&mut self, fp: Fingerprint, entry: Entry) -> bool {
        if self.may_have(fp) {
            return false;
        }
        let Some(slot) = self.empty_slot(fp) else { return false };
        self.put(slot, fp, entry);
        true
    }

    /// Removes an entry. Returns whether the line had it.
    #[inline]
    pub(super) fn leave(&mut self, fp: Fingerprint, entry: Entry) -> bool {
        let is_home = self.entries[home_slot(fp)] == entry;
        let slot = if is_home { Some(home_slot(fp)) } else { self.slot_of(entry) };
        if let Some(slot) = slot {
            self.empty(slot);
        }
        slot.is_some()
    }

    /// Returns the last slot with this entry.
    pub(super) fn slot_of(&self, entry: Entry) -> Option<usize> {
        let same = self.entries.map(|other| if other == entry { u8::MAX } else { 0 });
        let last_bit = u64::from_le_bytes(same).checked_ilog2();
        last_bit.map(|bit| (bit / u8::BITS) as usize)
    }

    /// Empties a slot. Also clears its fingerprint, which would block the insertion of its key.
    #[inline]
    pub(super) fn empty(&mut self, slot: usize) {
        self.put(slot, Fingerprint(0), NONE);
    }

    #[inline]
    pub(super) fn put(&mut self, slot: usize, Fingerprint(fingerprint): Fingerprint, entry: Entry) {
        self.fingerprints[slot] = fingerprint;
        self.entries[slot] = entry;
    }
}
