//! Changes of the hash table that concern one line alone, as nearly all do.

use super::line::{Entry, Line, NONE};
use super::line_layout::home_slot;
use crate::pool::blocks::Fingerprint;

/// Where the table looks for a key first, until it grows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) fingerprint: Fingerprint,
    pub(super) line: u32,
}

/// Access to a table for changes that concern one line alone. Each method returns `false` and changes
/// nothing if more is needed.
pub(super) struct LineChanges<'a> {
    pub(super) lines: &'a mut [Line],
    pub(super) passed: &'a [u8],
    pub(super) len: &'a mut usize,
    pub(super) max_len: usize,
    pub(super) has_duplicates: bool,
}

impl LineChanges<'_> {
    /// Adds an entry whose key no other entry has.
    #[inline]
    pub(super) fn insert(&mut self, place: Place, entry: Entry) -> bool {
        let is_added = *self.len < self.max_len && self.enter(place, entry);
        *self.len += usize::from(is_added);
        is_added
    }

    #[inline]
    fn enter(&mut self, Place { fingerprint, line }: Place, entry: Entry) -> bool {
        let is_passed = self.passed[line as usize] > 0;
        !is_passed && self.lines[line as usize].enter(fingerprint, entry)
    }

    /// Adds one entry after another, up to one that needs more. Returns how many were added.
    #[inline(never)]
    pub(super) fn insert_each(&mut self, places: &[Place], entries: &[Entry]) -> usize {
        let n = entries.len().min(self.max_len - *self.len);
        let (entries, places) = (&entries[..n], &places[..n]);
        // As long as each other, so that one check of a line is enough.
        let passed = &self.passed[..self.lines.len()];
        let lines = &mut *self.lines;
        let undone = places.iter().zip(entries).position(|(place, &entry)| {
            let line = &mut lines[place.line as usize];
            passed[place.line as usize] > 0 || !line.enter(place.fingerprint, entry)
        });
        let num_added = undone.unwrap_or(n);
        *self.len += num_added;
        num_added
    }

    /// Removes an entry that is no duplicate and has none.
    #[inline]
    pub(super) fn remove(&mut self, place: Place, entry: Entry) -> bool {
        let is_removed = !self.has_duplicates && self.leave(place, entry);
        *self.len -= usize::from(is_removed);
        is_removed
    }

    /// Removes one entry after another, up to one that needs more. Returns how many were removed.
    pub(super) fn remove_each(&mut self, entries: &[(Entry, Place)]) -> usize {
        if self.has_duplicates {
            return 0;
        }
        let left = entries.iter().map(|&(entry, place)| self.leave(place, entry));
        let num_removed = left.take_while(|&is_removed| is_removed).count();
        *self.len -= num_removed;
        num_removed
    }

    #[inline]
    fn leave(&mut self, Place { fingerprint, line }: Place, entry: Entry) -> bool {
        let line = &mut self.lines[line as usize];
        let slot = match line.entries[home_slot(fingerprint)] == entry {
            true => home_slot(fingerprint),
            false => match line.slot_of(entry) {
                Some(slot) => slot,
                None => return false,
            },
        };
        line.entries[slot] = NONE;
        true
    }
}
