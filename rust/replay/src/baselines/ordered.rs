//! Blocks in an order that is given by numbers.

use std::collections::BTreeSet;

use kvoxide_core::BlockId;

/// Blocks, each with a number. The lowest number is first.
#[derive(Clone, Debug, Default)]
pub struct Ordered {
    blocks: BTreeSet<(u64, BlockId)>,
}

impl Ordered {
    pub fn insert(&mut self, number: u64, block: BlockId) {
        self.blocks.insert((number, block));
    }

    /// Removes a block. Returns whether it was there.
    pub fn remove(&mut self, number: u64, block: BlockId) -> bool {
        self.blocks.remove(&(number, block))
    }

    /// Returns the first block, and its number.
    pub fn first(&self) -> Option<(u64, BlockId)> {
        self.blocks.first().copied()
    }

    pub fn pop_first(&mut self) -> Option<BlockId> {
        self.blocks.pop_first().map(|(_, block)| block)
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = BlockId> {
        self.blocks.iter().map(|&(_, block)| block)
    }
}
