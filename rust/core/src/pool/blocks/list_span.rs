//! Spans: blocks that are next to each other in a list.

use super::links::{Links, are_all, join};
use super::run::IdRun;
use crate::block::{BlockId, NULL_BLOCK};

/// Blocks that are next to each other in a list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListSpan {
    pub front: u32,
    pub back: u32,
    pub len: usize,
}

impl ListSpan {
    pub(crate) fn of(block: BlockId) -> Self {
        Self { front: block, back: block, len: 1 }
    }

    /// Returns the span of a run of ids, if the blocks are also next to each other in their list.
    #[inline]
    pub(crate) fn of_run(links: &[Links], run: IdRun) -> Option<Self> {
        let (low, high) = run.bounds();
        let [first, inner @ .., last] = &links[low as usize..=high as usize] else { return None };
        let len = run.len();
        if first.has_next_of(Links::UP) {
            are_all(inner, Links::UP).then_some(Self { front: low, back: high, len })
        } else {
            let is_span = last.has_next_of(Links::DOWN) && are_all(inner, Links::DOWN);
            is_span.then_some(Self { front: high, back: low, len })
        }
    }

    /// Returns a block of the span.
    pub(crate) fn first(&self) -> Option<BlockId> {
        (self.len > 0).then_some(self.front)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds the block right after the span.
    pub(crate) fn push(&mut self, block: BlockId) {
        if self.len == 0 {
            self.front = block;
        }
        self.back = block;
        self.len += 1;
    }

    /// Adds another span if it is right before or after this one. Returns whether it is.
    pub(crate) fn join(&mut self, links: &[Links], other: &Self) -> bool {
        let [before, behind] = self.neighbours(links);
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

    /// Removes the blocks from their ring.
    #[inline]
    pub(crate) fn unlink(&self, links: &mut [Links]) {
        if self.len > 0 {
            let [before, behind] = self.neighbours(links);
            join(links, before, behind);
        }
    }

    /// Returns the blocks before and after the span. For an empty span both are the null block.
    pub(crate) fn neighbours(&self, links: &[Links]) -> [u32; 2] {
        let Self { front, back, len } = *self;
        if len == 0 {
            return [NULL_BLOCK; 2];
        }
        [links[front as usize].prev_of(front), links[back as usize].next_of(back)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::blocks::links::tests::ring;

    #[test]
    fn a_run_of_ids_is_a_span_if_its_blocks_lie_side_by_side() {
        let row = IdRun { first: 1, last: 5 };
        for order in [[0, 1, 2, 3, 4, 5], [0, 5, 4, 3, 2, 1]] {
            for row in [row, row.reversed()] {
                let run = ListSpan::of_run(&ring(&order), row).expect("a run");
                assert_eq!((run.front, run.back, run.len), (order[1], order[5], 5));
            }
        }
        let others =
            [[0, 1, 2, 4, 3, 5], [0, 2, 1, 3, 4, 5], [0, 5, 3, 4, 2, 1], [1, 2, 3, 0, 4, 5]];
        for order in others {
            assert!(ListSpan::of_run(&ring(&order), row).is_none(), "{order:?}");
        }
    }
}
