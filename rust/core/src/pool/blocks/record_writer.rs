//! Changes to the holders and neighbours of many blocks, one after the other.

use super::fingerprint::Fingerprint;
use super::flags::flag;
use super::links::{Links, join, unlink};
use super::records::Records;
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

    /// As `Blocks::remove_reference`, if the block becomes cached; whether it did. Then it stands
    /// between two others, which do not know it yet.
    #[inline]
    pub fn release_between(&mut self, prev: u32, id: BlockId, next: u32) -> bool {
        let usage = &mut self.usage[id as usize];
        if *usage & !flag::IN_TRIE != flag::CACHED + 1 {
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
}

/// How blocks leave the rings that they are in, one after the other.
pub trait Unlinking: Copy + Default {
    /// A block leaves, at the latest when [`Self::finish`] is called.
    fn unlink(&mut self, records: &mut RecordWriter<'_>, block: BlockId);

    /// All blocks have left.
    fn finish(self, records: &mut RecordWriter<'_>);
}

/// Each by itself.
#[derive(Clone, Copy, Default)]
pub struct Alone;

impl Unlinking for Alone {
    #[inline]
    fn unlink(&mut self, records: &mut RecordWriter<'_>, block: BlockId) {
        unlink(records.links, block);
    }

    fn finish(self, _: &mut RecordWriter<'_>) {}
}

/// Those together that stand side by side: what stands before and behind them, or the null block
/// where there are none.
#[derive(Clone, Copy, Default)]
pub struct Beside {
    before: u32,
    behind: u32,
}

impl Unlinking for Beside {
    #[inline]
    fn unlink(&mut self, records: &mut RecordWriter<'_>, block: BlockId) {
        let own = records.links[block as usize];
        if block == self.before {
            self.before = own.prev_of(block);
        } else if block == self.behind {
            self.behind = own.next_of(block);
        } else {
            self.finish(records);
            *self = Self { before: own.prev_of(block), behind: own.next_of(block) };
        }
    }

    #[inline]
    fn finish(self, records: &mut RecordWriter<'_>) {
        if self.before != NULL_BLOCK {
            join(records.links, self.before, self.behind);
        }
    }
}
