//! Holds the values of consecutive blocks while the values of their tails are computed.

use std::ops::Range;

use crate::pool::ValueLevel;

/// The values of the blocks of a range.
pub(super) struct BlockValues {
    start: usize,
    values: Vec<Option<ValueLevel>>,
    num_missing: usize,
}

impl BlockValues {
    pub(super) fn new(range: Range<usize>) -> Self {
        Self { start: range.start, values: vec![None; range.len()], num_missing: range.len() }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.num_missing == 0
    }

    /// Raises the value of blocks to `value`. Blocks with a higher value keep it.
    pub(super) fn raise(&mut self, blocks: Range<usize>, value: ValueLevel) {
        let mut num_filled = 0;
        for own in self.part(blocks) {
            num_filled += usize::from(own.is_none());
            *own = Some(own.map_or(value, |own| own.max(value)));
        }
        self.num_missing -= num_filled;
    }

    /// Marks the values of blocks as durable. Blocks without a value stay without.
    pub(super) fn mark_durable(&mut self, blocks: Range<usize>) {
        let valued = self.part(blocks).iter_mut().flatten();
        valued.for_each(|value| *value = value.durable());
    }

    fn part(&mut self, blocks: Range<usize>) -> &mut [Option<ValueLevel>] {
        let len = self.values.len();
        let [first, end] =
            [blocks.start, blocks.end].map(|block| block.saturating_sub(self.start).min(len));
        self.values.get_mut(first..end).unwrap_or_default()
    }

    pub(super) fn runs(self) -> Vec<(Range<usize>, ValueLevel)> {
        let mut runs: Vec<(Range<usize>, ValueLevel)> = Vec::new();
        for (block, &value) in (self.start..).zip(&self.values) {
            let Some(value) = value else { continue };
            match runs.last_mut() {
                Some((run, last)) if run.end == block && *last == value => run.end += 1,
                _ => runs.push((block..block + 1, value)),
            }
        }
        runs
    }
}
