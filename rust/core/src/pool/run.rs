//! Blocks that stand side by side in a queue.

use super::record::{Record, next_of, prev_of};
use crate::block::{BlockId, NULL_BLOCK};

/// Blocks that stand side by side in a list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    pub front: u32,
    pub back: u32,
    pub len: usize,
}

impl Run {
    /// A run of one block.
    pub fn of(block: BlockId) -> Self {
        Self { front: block, back: block, len: 1 }
    }

    /// A block of the run, if it has one.
    pub fn first(&self) -> Option<BlockId> {
        (self.len > 0).then_some(self.front)
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of blocks in the run.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds the block that stands right behind the run.
    pub fn push(&mut self, block: BlockId) {
        if self.len == 0 {
            self.front = block;
        }
        self.back = block;
        self.len += 1;
    }

    /// Adds a block if it stands right before or behind the run; whether it does.
    #[inline]
    pub fn grow(&mut self, records: &[Record], block: BlockId) -> bool {
        if self.len == 0 {
            return false;
        } else if prev_of(self.front, &records[self.front as usize]) == block {
            self.front = block;
        } else if next_of(self.back, &records[self.back as usize]) == block {
            self.back = block;
        } else {
            return false;
        }
        self.len += 1;
        true
    }

    /// Adds blocks that stand side by side if they stand right before or behind the run; whether
    /// they do.
    pub fn join(&mut self, records: &[Record], other: &Self) -> bool {
        let [before, behind] = self.neighbours(records);
        if self.len == 0 {
            *self = *other;
        } else if before == other.back {
            self.front = other.front;
            self.len += other.len;
        } else if behind == other.front {
            self.back = other.back;
            self.len += other.len;
        } else {
            return false;
        }
        true
    }

    /// The blocks before and behind the run; the null block twice if there is no run.
    pub fn neighbours(&self, records: &[Record]) -> [u32; 2] {
        let Self { front, back, len } = *self;
        if len == 0 {
            return [NULL_BLOCK; 2];
        }
        let record = |id: u32| &records[id as usize];
        [prev_of(front, record(front)), next_of(back, record(back))]
    }
}
