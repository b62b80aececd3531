//! Changes to the references and neighbours of many blocks, one after another.

use super::fingerprint::Fingerprint;
use super::flags::flag;
use super::links::{Links, unlink};
use super::records::Records;
use crate::block::BlockId;

/// Access to the records of the first blocks, so many, and to the links of all.
pub(crate) struct RecordWriter<'a> {
    usage: &'a mut [u32],
    links: &'a mut [Links],
    fingerprints: &'a [Fingerprint],
}

impl<'a> RecordWriter<'a> {
    #[inline]
    pub(crate) fn of_first(records: &'a mut Records, n: usize) -> Self {
        let Records { usage, links, fingerprints } = records;
        // Shows the compiler that an id below `n` needs no check of its own.
        assert!(n <= links.len());
        Self { usage: &mut usage[..n], links, fingerprints: &fingerprints[..n] }
    }

    /// Adds a reference to a free block and removes it from its list.
    #[inline]
    pub(crate) fn hit(&mut self, id: BlockId) {
        self.usage[id as usize] += 1;
        unlink(self.links, id);
    }

    /// Removes the last reference to a block that is cached under its own hash alone, and lets it name
    /// its neighbours in a list, which do not name it yet. Returns whether it is such a block.
    #[inline]
    pub(crate) fn release_between(&mut self, prev: u32, id: BlockId, next: u32) -> bool {
        let usage = &mut self.usage[id as usize];
        if *usage & !flag::IN_TRIE != flag::CACHED + 1 {
            return false;
        }
        *usage -= 1;
        self.links[id as usize] = Links::between(prev, id, next);
        true
    }

    #[inline]
    pub(crate) fn fingerprint(&self, id: BlockId) -> Fingerprint {
        self.fingerprints[id as usize]
    }
}
