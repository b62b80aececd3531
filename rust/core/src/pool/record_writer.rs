//! Changes to the holders and neighbours of many blocks, one after the other.

use super::index::Fingerprint;
use super::record::{self, MAX_REFERENCES, Record, flag, word};
use super::run::Run;
use crate::block::BlockId;

/// Changes the holders and neighbours of blocks.
pub struct RecordWriter<'a>(&'a mut [Record]);

impl<'a> RecordWriter<'a> {
    /// To change these records.
    pub fn new(records: &'a mut [Record]) -> Self {
        Self(records)
    }

    /// The records as they are now.
    #[inline]
    pub fn records(&self) -> &[Record] {
        self.0
    }

    /// Adds a reference to a block that has none; whether it had none.
    #[inline]
    pub fn add_first_reference(&mut self, id: BlockId) -> bool {
        let usage = &mut self.0[id as usize][word::USE];
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
        let record = &mut self.0[id as usize];
        if record[word::USE] & !flag::LINKED != flag::CACHED + 1 {
            return false;
        }
        record[word::USE] -= 1;
        record[word::NEXT] = record::to_next(id, next);
        record[word::PREV] = record::to_prev(id, prev);
        true
    }

    #[inline]
    pub fn fingerprint(&self, id: BlockId) -> Fingerprint {
        Fingerprint(self.0[id as usize][word::FINGERPRINT])
    }

    /// Takes blocks that stand side by side out of the ring that they are in.
    pub fn unlink_run(&mut self, run: &Run) {
        if !run.is_empty() {
            let [before, behind] = run.neighbours(self.0);
            record::join(self.0, before, behind);
        }
    }
}
