//! Duplicates: entries whose key is served by another entry.

use std::collections::VecDeque;

use super::line::Entry;

/// The duplicates of each entry that serves a key, in the order of insertion.
#[derive(Debug, Default)]
pub(super) struct Duplicates(hashbrown::HashMap<Entry, Entries, foldhash::fast::FixedState>);

/// At least one entry. The usual single entry needs no allocated memory.
#[derive(Debug)]
enum Entries {
    One(Entry),
    Several(VecDeque<Entry>),
}

impl Duplicates {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether an entry has a duplicate.
    pub(super) fn has(&self, first: Entry) -> bool {
        self.0.contains_key(&first)
    }

    /// Returns the duplicates of an entry.
    pub(super) fn of(&self, first: Entry) -> impl Iterator<Item = Entry> + '_ {
        let (one, several) = match self.0.get(&first) {
            None => (None, None),
            Some(Entries::One(entry)) => (Some(*entry), None),
            Some(Entries::Several(entries)) => (None, Some(entries)),
        };
        one.into_iter().chain(several.into_iter().flatten().copied())
    }

    pub(super) fn push(&mut self, first: Entry, entry: Entry) {
        let entries = self.0.entry(first);
        entries.and_modify(|entries| entries.push(entry)).or_insert(Entries::One(entry));
    }

    /// Removes an entry that served its key. Returns its next duplicate, which takes over the other
    /// duplicates.
    pub(super) fn replace(&mut self, first: Entry) -> Option<Entry> {
        match self.0.remove(&first)? {
            Entries::One(next_duplicate) => Some(next_duplicate),
            Entries::Several(mut entries) => {
                let next_duplicate = entries.pop_front()?;
                if !entries.is_empty() {
                    self.0.insert(next_duplicate, Entries::Several(entries));
                }
                Some(next_duplicate)
            }
        }
    }

    /// Removes a duplicate of `first`.
    pub(super) fn remove(&mut self, first: Entry, entry: Entry) {
        let is_last = match self.0.get_mut(&first) {
            None => false,
            Some(Entries::One(other)) => *other == entry,
            Some(Entries::Several(entries)) => {
                entries.retain(|&other| other != entry);
                entries.is_empty()
            }
        };
        if is_last {
            self.0.remove(&first);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Entries {
    fn push(&mut self, entry: Entry) {
        match self {
            Self::One(first) => *self = Self::Several(VecDeque::from([*first, entry])),
            Self::Several(entries) => entries.push_back(entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_serve_in_the_order_of_insertion() {
        let mut duplicates = Duplicates::default();
        [2, 3, 4, 5].into_iter().for_each(|entry| duplicates.push(1, entry));
        duplicates.push(9, 8);
        duplicates.remove(1, 4);
        assert_eq!(duplicates.of(1).collect::<Vec<_>>(), [2, 3, 5]);
        assert_eq!(duplicates.of(9).collect::<Vec<_>>(), [8]);
        assert_eq!(duplicates.replace(1), Some(2));
        duplicates.push(2, 6);
        assert_eq!([2, 3, 5].map(|first| duplicates.replace(first)), [Some(3), Some(5), Some(6)]);
        assert_eq!((duplicates.replace(6), duplicates.of(6).count()), (None, 0));
        duplicates.remove(9, 7);
        assert!(!duplicates.is_empty());
        duplicates.remove(9, 8);
        assert!(duplicates.is_empty());
    }

    #[test]
    fn the_last_of_several_leaves_nothing_behind() {
        let mut duplicates = Duplicates::default();
        [2, 3].into_iter().for_each(|entry| duplicates.push(1, entry));
        [2, 3].into_iter().for_each(|entry| duplicates.remove(1, entry));
        assert!(duplicates.is_empty());
        duplicates.remove(1, 2);
        assert_eq!(duplicates.replace(1), None);
    }
}
