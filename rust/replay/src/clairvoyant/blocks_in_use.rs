//! Computes the smallest number of blocks in use.

use std::ops::Range;

use super::tables::{Held, Progress, Table};

/// The blocks that running requests use. Each block is counted once.
#[derive(Debug)]
pub struct BlocksInUse {
    tables: Vec<SharedTable>,
    num_blocks: usize,
}

/// The blocks that one running request holds in each table.
pub type Holding = Vec<Held>;

#[derive(Debug)]
struct SharedTable {
    table: Table,
    /// `None` if blocks do not end where units end. Such blocks are assumed to cost nothing.
    units_per_block: Option<usize>,
    /// For each prefix, the number of requests that hold the block in which it ends.
    num_holders: Vec<u32>,
}

impl BlocksInUse {
    /// Creates tables without blocks in use. Prefixes are counted in units of `unit` tokens.
    pub fn new(tables: Vec<Table>, unit: usize) -> Self {
        let shared = |table: Table| SharedTable {
            units_per_block: table.block_size.is_multiple_of(unit).then(|| table.block_size / unit),
            num_holders: Vec::new(),
            table,
        };
        Self { tables: tables.into_iter().map(shared).collect(), num_blocks: 0 }
    }

    /// Returns the number of blocks in use.
    pub fn num_blocks(&self) -> usize {
        self.num_blocks
    }

    /// Extends the tables to prefixes of all numbers below `num_prefixes`.
    pub fn resize(&mut self, num_prefixes: usize) {
        self.tables.iter_mut().for_each(|table| table.num_holders.resize(num_prefixes, 0));
    }

    /// Updates the blocks of a request with these prefixes to its progress. The progress never
    /// decreases.
    pub fn hold(&mut self, holding: &mut Holding, prefixes: &[u32], progress: Progress) {
        holding.resize(self.tables.len(), Held::default());
        for (table, held) in self.tables.iter_mut().zip(holding) {
            let next = table.table.held(progress);
            let taken = held.shared.end.max(next.shared.start)..next.shared.end;
            let released = held.shared.start..held.shared.end.min(next.shared.start);
            let num_taken = table.take(prefixes, taken) + next.num_own;
            let num_released = table.release_range(prefixes, released) + held.num_own;
            self.num_blocks += num_taken * table.table.num_groups;
            self.num_blocks -= num_released * table.table.num_groups;
            *held = next;
        }
    }

    /// Releases all blocks of a request.
    pub fn release(&mut self, holding: &mut Holding, prefixes: &[u32]) {
        for (table, held) in self.tables.iter_mut().zip(holding.drain(..)) {
            let num_released = table.release_range(prefixes, held.shared) + held.num_own;
            self.num_blocks -= num_released * table.table.num_groups;
        }
    }
}

impl SharedTable {
    /// Adds a request to the blocks at these positions. Returns how many of them were not in use.
    fn take(&mut self, prefixes: &[u32], positions: Range<usize>) -> usize {
        let Some(per_block) = self.units_per_block else { return 0 };
        let mut num_taken = 0;
        for position in positions {
            let num_holders = &mut self.num_holders[prefix(prefixes, position, per_block)];
            num_taken += usize::from(*num_holders == 0);
            *num_holders += 1;
        }
        num_taken
    }

    /// Removes a request from the blocks at these positions. Returns how many of them become free.
    fn release_range(&mut self, prefixes: &[u32], positions: Range<usize>) -> usize {
        let Some(per_block) = self.units_per_block else { return 0 };
        let mut num_released = 0;
        for position in positions {
            let num_holders = &mut self.num_holders[prefix(prefixes, position, per_block)];
            *num_holders -= 1;
            num_released += usize::from(*num_holders == 0);
        }
        num_released
    }
}

/// Returns the number of the prefix that ends with the block at a position.
fn prefix(prefixes: &[u32], position: usize, per_block: usize) -> usize {
    prefixes[(position + 1) * per_block - 1] as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clairvoyant::tables::tables;
    use kvoxide_core::{GroupSpec, Manager, ManagerConfig};

    fn usage(groups: &[GroupSpec], unit: usize) -> BlocksInUse {
        let config = ManagerConfig::new(100, groups.to_vec(), 1 << 20);
        let mut usage = BlocksInUse::new(tables(&Manager::new(config).expect("a manager")), unit);
        usage.resize(100);
        usage
    }

    fn progress(num_tokens: usize) -> Progress {
        Progress { num_tokens, at_most: num_tokens, num_prompt_tokens: 64, num_known_tokens: 64 }
    }

    #[test]
    fn requests_share_equal_prefixes_and_nothing_else() {
        let mut usage = usage(&[GroupSpec::full(16)], 16);
        let (mut first, mut second) = (Holding::new(), Holding::new());
        usage.hold(&mut first, &[0, 1, 2, 3], progress(64));
        assert_eq!(usage.num_blocks(), 4);
        usage.hold(&mut second, &[0, 1, 7, 8], progress(40));
        assert_eq!(usage.num_blocks(), 5, "two are shared, and the third is not full");
        usage.hold(&mut second, &[0, 1, 7, 8], progress(65));
        assert_eq!(usage.num_blocks(), 7);
        usage.release(&mut first, &[0, 1, 2, 3]);
        assert_eq!(usage.num_blocks(), 5);
        usage.release(&mut second, &[0, 1, 7, 8]);
        assert_eq!(usage.num_blocks(), 0);
    }

    #[test]
    fn a_window_releases_the_blocks_that_leave_it() {
        let groups = [GroupSpec::full(32), GroupSpec::sliding_window(16, 17)];
        let mut usage = usage(&groups, 16);
        let mut holding = Holding::new();
        usage.hold(&mut holding, &[0, 1, 2, 3], progress(48));
        assert_eq!(usage.num_blocks(), 2 + 1);
        usage.hold(&mut holding, &[0, 1, 2, 3], progress(64));
        assert_eq!(usage.num_blocks(), 2 + 1);
        usage.hold(&mut holding, &[0, 1, 2, 3], progress(65));
        assert_eq!(usage.num_blocks(), 3 + 2);
    }
}
