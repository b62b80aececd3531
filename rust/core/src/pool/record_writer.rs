//! Changes to the holders and neighbours of many blocks, one after the other.

use super::index::Fingerprint;
use super::links::{Links, unlink};
use super::records::Records;
use super::usage::{MAX_REFERENCES, flag};
use crate::block::BlockId;

/// Changes the holders and neighbours of blocks.
pub struct RecordWriter<'a> {
    usage: &'a mut [u32],
    links: &'a mut [Links],
    fingerprints: &'a [Fingerprint],
}

impl<'a> RecordWriter<'a> {
    /// To change these records.
    pub fn new(records: &'a mut Records) -> Self {
        let Records { usage, links, fingerprints } = records;
        Self { usage, links, fingerprints }
    }

    /// To change the first of these records, so many.
    pub fn of_first(records: &'a mut Records, n: usize) -> Self {
        let Records { usage, links, fingerprints } = records;
        Self { usage: &mut usage[..n], links: &mut links[..n], fingerprints: &fingerprints[..n] }
    }

    /// Adds a reference to a block that has none; whether it had none.
    #[inline]
    pub fn add_first_reference(&mut self, id: BlockId) -> bool {
        let usage = &mut self.usage[id as usize];
        if *usage & MAX_REFERENCES != 0 {
            return false;
        }
        *usage += 1;
        true
    }

    /// As `BlockStates::drop_reference`, if the block becomes cached; whether it did. Then it stands
    /// between two others, which do not know it yet.
    #[inline]
    pub fn drop_between(&mut self, prev: u32, id: BlockId, next: u32) -> bool {
        let usage = &mut self.usage[id as usize];
        if *usage & !flag::LINKED != flag::CACHED + 1 {
            return false;
        }
        *usage -= 1;
        self.links[id as usize] = Links::between(prev, id, next);
        true
    }

    #[inline]
    pub fn fingerprint(&self, id: BlockId) -> Fingerprint {
        self.fingerprints[id as usize]
    }

    /// Takes a block out of the ring that it is in.
    #[inline]
    pub fn unlink(&mut self, id: BlockId) {
        unlink(self.links, id);
    }
}
