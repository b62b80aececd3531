//! Changes the references and neighbours of many blocks, one after another.

use super::Blocks;
use super::fingerprint::Fingerprint;
use super::flags::flag;
use super::links::{Links, unlink};
use crate::block::BlockId;

/// Gives access to the references, flags and fingerprints of the first `n` blocks, and to all
/// links.
pub(crate) struct RecordWriter<'a> {
    usage: &'a mut [u32],
    links: &'a mut [Links],
    fingerprints: &'a [Fingerprint],
}

impl Blocks {
    /// Returns access to the first `n` blocks.
    #[inline]
    pub(crate) fn writer_of_first(&mut self, n: usize) -> RecordWriter<'_> {
        let Self { usage, links, fingerprints, .. } = self;
        // This shows the compiler that an id below `n` needs no check.
        assert!(n <= links.len());
        RecordWriter { usage: &mut usage[..n], links, fingerprints: &fingerprints[..n] }
    }
}

impl RecordWriter<'_> {
    /// Adds a reference to a free block and removes it from its list.
    #[inline]
    pub(crate) fn hit(&mut self, id: BlockId) {
        self.usage[id as usize] += 1;
        unlink(self.links, id);
    }

    /// Removes the last reference to a block that is cached only under its own hash, and writes its
    /// links. Does not change the neighbours' links. For any other block, changes nothing and
    /// returns `false`.
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
