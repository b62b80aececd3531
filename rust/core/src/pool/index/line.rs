//! One line of the hash table: eight slots, each with an entry and the fingerprint of its key.

use bytemuck::{Pod, Zeroable};

use super::line_layout::home_slot;
use crate::pool::blocks::fingerprint::Fingerprint;

/// Slots on a line.
pub const LINE_LEN: usize = 8;

/// What the index points at: a block, or a alias key of a block. Never 0.
pub type Entry = u32;

/// What stands in an empty slot.
pub const NONE: Entry = 0;

/// Eight slots of a hash table: one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Line {
    /// Of the keys of the entries.
    pub fingerprints: [u32; LINE_LEN],
    /// Entries; 0 where a slot is empty.
    pub entries: [u32; LINE_LEN],
}

/// The searches compare all slots at once, without a branch for each.
impl Line {
    /// Whether any slot has, or had last, an entry with this fingerprint.
    #[inline]
    pub fn may_have(&self, fp: Fingerprint) -> bool {
        self.fingerprints.iter().fold(false, |any, &other| any | (other == fp.0))
    }

    #[inline(never)]
    pub fn entry_with(&self, fp: Fingerprint, is_match: impl Fn(Entry) -> bool) -> Option<Entry> {
        let slots = self.fingerprints.iter().zip(self.entries);
        let mut candidates = slots.filter(|(other, entry)| **other == fp.0 && *entry != NONE);
        candidates.find(|&(_, entry)| is_match(entry)).map(|(_, entry)| entry)
    }

    /// An empty slot: the one that the key likes best, or one that few keys like.
    #[inline]
    pub fn empty_slot(&self, fp: Fingerprint) -> Option<usize> {
        match self.entries[home_slot(fp)] {
            NONE => Some(home_slot(fp)),
            _ => self.slot_of(NONE),
        }
    }

    /// Puts an entry in an empty slot, if there is one and no slot has, or had last, an entry with
    /// this fingerprint; whether it was done.
    #[inline]
    pub fn enter(&mut self, fp: Fingerprint, entry: Entry) -> bool {
        if self.may_have(fp) {
            return false;
        }
        let Some(slot) = self.empty_slot(fp) else { return false };
        self.put(slot, fp, entry);
        true
    }

    /// The last slot with this entry.
    pub fn slot_of(&self, entry: Entry) -> Option<usize> {
        let same = self.entries.map(|other| if other == entry { u8::MAX } else { 0 });
        let last_bit = u64::from_le_bytes(same).checked_ilog2();
        last_bit.map(|bit| (bit / u8::BITS) as usize)
    }

    #[inline]
    pub fn put(&mut self, slot: usize, Fingerprint(fingerprint): Fingerprint, entry: Entry) {
        self.fingerprints[slot] = fingerprint;
        self.entries[slot] = entry;
    }
}
