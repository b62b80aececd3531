//! Entries whose key an earlier one has: they wait behind it.

use std::collections::VecDeque;

use super::line::Entry;

/// Later entries with the key of an entry that is served, in the order of insertion.
#[derive(Debug, Default)]
pub(crate) struct Duplicates(hashbrown::HashMap<Entry, Waiting, foldhash::fast::FixedState>);

/// At least one entry. Mostly there is no second one: it needs no memory of its own.
#[derive(Debug)]
enum Waiting {
    One(Entry),
    Several(VecDeque<Entry>),
}

impl Duplicates {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries behind one that is served.
    pub fn behind(&self, first: Entry) -> impl Iterator<Item = Entry> + '_ {
        let (one, several) = match self.0.get(&first) {
            None => (None, None),
            Some(Waiting::One(entry)) => (Some(*entry), None),
            Some(Waiting::Several(entries)) => (None, Some(entries)),
        };
        one.into_iter().chain(several.into_iter().flatten().copied())
    }

    pub fn push(&mut self, first: Entry, entry: Entry) {
        let waiting = self.0.entry(first);
        waiting.and_modify(|waiting| waiting.push(entry)).or_insert(Waiting::One(entry));
    }

    /// An entry is served no more: the next one, with the others behind it.
    pub fn succeed(&mut self, first: Entry) -> Option<Entry> {
        match self.0.remove(&first)? {
            Waiting::One(next_duplicate) => Some(next_duplicate),
            Waiting::Several(mut entries) => {
                let next_duplicate = entries.pop_front()?;
                if !entries.is_empty() {
                    self.0.insert(next_duplicate, Waiting::Several(entries));
                }
                Some(next_duplicate)
            }
        }
    }

    /// Takes an entry from behind the one that is served.
    pub fn remove(&mut self, first: Entry, entry: Entry) {
        let is_last = match self.0.get_mut(&first) {
            None => false,
            Some(Waiting::One(other)) => *other == entry,
            Some(Waiting::Several(entries)) => {
                entries.retain(|&other| other != entry);
                entries.is_empty()
            }
        };
        if is_last {
            self.0.remove(&first);
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Waiting {
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
    fn entries_are_served_in_the_order_of_insertion() {
        let mut duplicates = Duplicates::default();
        [2, 3, 4, 5].into_iter().for_each(|entry| duplicates.push(1, entry));
        duplicates.push(9, 8);
        duplicates.remove(1, 4);
        assert_eq!(duplicates.behind(1).collect::<Vec<_>>(), [2, 3, 5]);
        assert_eq!(duplicates.behind(9).collect::<Vec<_>>(), [8]);
        assert_eq!(duplicates.succeed(1), Some(2));
        duplicates.push(2, 6);
        assert_eq!([2, 3, 5].map(|first| duplicates.succeed(first)), [Some(3), Some(5), Some(6)]);
        assert_eq!((duplicates.succeed(6), duplicates.behind(6).count()), (None, 0));
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
        assert_eq!(duplicates.succeed(1), None);
    }
}
