//! Entries whose key an earlier one has: they wait behind it.

use std::collections::VecDeque;

use super::line::Entry;

/// Later entries with the key of an entry that is served, in the order of insertion.
#[derive(Debug, Default)]
pub(super) struct Duplicates(
    hashbrown::HashMap<Entry, VecDeque<Entry>, foldhash::fast::FixedState>,
);

impl Duplicates {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries behind one that is served.
    pub fn behind(&self, first: Entry) -> impl Iterator<Item = Entry> + '_ {
        self.0.get(&first).into_iter().flatten().copied()
    }

    pub fn push(&mut self, first: Entry, entry: Entry) {
        self.0.entry(first).or_default().push_back(entry);
    }

    /// An entry is served no more: the next one, with the others behind it.
    pub fn succeed(&mut self, first: Entry) -> Option<Entry> {
        let mut line = self.0.remove(&first)?;
        let heir = line.pop_front();
        if let (Some(heir), false) = (heir, line.is_empty()) {
            self.0.insert(heir, line);
        }
        heir
    }

    /// Takes an entry from behind the one that is served.
    pub fn remove(&mut self, first: Entry, entry: Entry) {
        let Some(line) = self.0.get_mut(&first) else { return };
        line.retain(|&other| other != entry);
        if line.is_empty() {
            self.0.remove(&first);
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
