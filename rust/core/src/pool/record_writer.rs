//! Changes to the holders and neighbours of many blocks, one after the other.

use super::index::Fingerprint;
use super::links::{Links, join, unlink};
use super::records::Records;
use super::usage::flag;
use crate::block::{BlockId, NULL_BLOCK};

/// Changes the holders and neighbours of blocks.
pub struct RecordWriter<'a> {
    usage: &'a mut [u32],
    links: &'a mut [Links],
    fingerprints: &'a [Fingerprint],
}

impl<'a> RecordWriter<'a> {
    /// To change the first of these records, so many, and the links of all.
    #[inline]
    pub fn of_first(records: &'a mut Records, n: usize) -> Self {
        let Records { usage, links, fingerprints } = records;
        // Lets the compiler see that an id that is one of the others needs no check of its own.
        assert!(n <= links.len());
        Self { usage: &mut usage[..n], links, fingerprints: &fingerprints[..n] }
    }

    /// Adds a reference to a block.
    #[inline]
    pub fn add_reference(&mut self, id: BlockId) {
        self.usage[id as usize] += 1;
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
    pub fn unlink(&mut self, block: BlockId) {
        unlink(self.links, block);
    }

    /// Takes a block out of the ring that it is in, together with those before it that stand beside
    /// each other: at the latest [`Self::unlink_all`] does.
    #[inline]
    pub fn unlink_beside(&mut self, beside: &mut Beside, block: BlockId) {
        let own = self.links[block as usize];
        if block == beside.before {
            beside.before = own.prev_of(block);
        } else if block == beside.behind {
            beside.behind = own.next_of(block);
        } else {
            let next = Beside { before: own.prev_of(block), behind: own.next_of(block) };
            self.unlink_all(std::mem::replace(beside, next));
        }
    }

    /// Takes blocks that stand side by side out of their ring.
    #[inline]
    pub fn unlink_all(&mut self, beside: Beside) {
        if beside.before != NULL_BLOCK {
            join(self.links, beside.before, beside.behind);
        }
    }
}

/// What stands before and behind blocks that stand side by side; the null block where there are
/// none.
#[derive(Default)]
pub struct Beside {
    before: u32,
    behind: u32,
}
