//! The block table of a request in one group.

use crate::block::{BlockId, NULL_BLOCK};

/// Blocks of one group in token order. Leading null blocks are stored as a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupBlocks {
    null_head: usize,
    /// Ids before this index are already counted in the null head.
    start: usize,
    ids: Vec<BlockId>,
}

impl GroupBlocks {
    /// The number of blocks from which a list gets spare capacity.
    const MANY: usize = 1 << 9;

    /// Creates a list of `null_head` null blocks, followed by `ids`.
    pub fn new(null_head: usize, ids: Vec<BlockId>) -> Self {
        let mut blocks = Self { null_head, start: 0, ids };
        blocks.absorb_leading_nulls();
        blocks
    }

    /// Returns the number of blocks, including null blocks.
    pub fn len(&self) -> usize {
        self.null_head + self.ids().len()
    }

    /// Returns whether the list has no block.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of leading null blocks.
    pub fn null_head(&self) -> usize {
        self.null_head
    }

    /// Returns the blocks after the null head.
    pub fn ids(&self) -> &[BlockId] {
        &self.ids[self.start..]
    }

    /// Returns the block at a position.
    pub fn get(&self, index: usize) -> Option<BlockId> {
        if index < self.null_head {
            return Some(NULL_BLOCK);
        }
        self.ids().get(index - self.null_head).copied()
    }

    /// Returns the blocks after the null head from a position on, and the position of the first
    /// one.
    pub fn ids_from(&self, index: usize) -> (usize, &[BlockId]) {
        let first = index.max(self.null_head);
        (first, self.ids().get(first - self.null_head..).unwrap_or(&[]))
    }

    /// Returns all blocks, including null blocks.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = BlockId> + '_ {
        let nulls = std::iter::repeat_n(NULL_BLOCK, self.null_head);
        nulls.chain(self.ids().iter().copied())
    }

    /// Returns the non-null blocks, from last to first.
    pub(crate) fn iter_owned_rev(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.ids().iter().rev().copied().filter(|&block| block != NULL_BLOCK)
    }

    /// Adds null blocks at the end.
    pub(crate) fn push_nulls(&mut self, n: usize) {
        if self.ids().is_empty() {
            self.null_head += n;
        } else {
            self.ids.extend(std::iter::repeat_n(NULL_BLOCK, n));
        }
    }

    /// Adds the blocks of another list from position `skip` on. If they are many, also reserves
    /// spare capacity, because otherwise the first new block after a hit would copy the whole list.
    pub fn extend_from(&mut self, other: &Self, skip: usize) {
        self.push_nulls(other.null_head.saturating_sub(skip));
        let ids = other.ids_from(skip).1;
        if ids.len() >= Self::MANY {
            self.ids.reserve(ids.len() + ids.len() / 8);
        }
        self.ids.extend_from_slice(ids);
    }

    /// Returns the end of the list, for adding non-null blocks.
    pub(crate) fn ids_mut(&mut self) -> &mut Vec<BlockId> {
        &mut self.ids
    }

    /// Adds a block at the end. It must not be null.
    pub fn push(&mut self, block: BlockId) {
        self.ids.push(block);
    }

    /// Replaces the block at a position after the null head. Returns the former block.
    pub fn replace(&mut self, index: usize, block: BlockId) -> Option<BlockId> {
        let position = self.start + index.checked_sub(self.null_head)?;
        let place = self.ids.get_mut(position)?;
        let replaced = std::mem::replace(place, block);
        self.absorb_leading_nulls();
        Some(replaced)
    }

    /// Returns how many null blocks there are from a position on.
    pub(crate) fn num_nulls_from(&self, index: usize) -> usize {
        let (first, ids) = self.ids_from(index);
        let num_inside = ids.iter().filter(|&&block| block == NULL_BLOCK).count();
        first.min(self.len()).saturating_sub(index) + num_inside
    }

    /// Replaces the null blocks from a position on by as many `new` blocks.
    /// Returns the position of the first of them, or the length of the list if there is none.
    pub(crate) fn replace_nulls_from(&mut self, index: usize, new: &[BlockId]) -> usize {
        let mut blocks = self.since(index);
        let nulls = || blocks.iter().position(|&block| block == NULL_BLOCK);
        let first = nulls().map_or(self.len(), |at| index + at);
        let nulls = blocks.iter_mut().filter(|block| **block == NULL_BLOCK);
        nulls.zip(new).for_each(|(place, &block)| *place = block);
        self.truncate(index);
        self.ids.extend(blocks);
        first
    }

    /// Replaces the blocks at positions `first..end` with null blocks. Returns the former non-null
    /// blocks, from last to first.
    pub(crate) fn release_all_in_range(&mut self, first: usize, end: usize) -> Vec<BlockId> {
        let range = self.range_mut(first, end);
        let released = range.iter().rev().copied().filter(|&id| id != NULL_BLOCK).collect();
        range.fill(NULL_BLOCK);
        self.absorb_leading_nulls();
        released
    }

    /// Returns all blocks from a position on, including null blocks.
    pub fn since(&self, index: usize) -> Vec<BlockId> {
        let (first, ids) = self.ids_from(index);
        let num_nulls = first.min(self.len()).saturating_sub(index);
        let nulls = std::iter::repeat_n(NULL_BLOCK, num_nulls);
        nulls.chain(ids.iter().copied()).collect()
    }

    /// Shortens the list.
    pub fn truncate(&mut self, len: usize) {
        if len <= self.null_head {
            *self = Self { null_head: len, ..Self::default() };
        } else {
            self.ids.truncate(self.start + len - self.null_head);
        }
    }

    /// Replaces blocks with null blocks, from `end` back to `first`. Stops at the first null block.
    /// Returns the former blocks, from last to first.
    pub(crate) fn release_range(&mut self, first: usize, end: usize) -> Vec<BlockId> {
        let range = self.range_mut(first, end);
        if range.is_empty() {
            return Vec::new();
        }
        // Almost always no block is null. The compiler vectorises this loop.
        let none_is_null = range.iter().fold(true, |all, &id| all & (id != NULL_BLOCK));
        let first = match none_is_null {
            true => 0,
            false => range.iter().rposition(|&id| id == NULL_BLOCK).map_or(0, |last| last + 1),
        };
        let blocks = &mut range[first..];
        let released = blocks.iter().rev().copied().collect();
        blocks.fill(NULL_BLOCK);
        self.absorb_leading_nulls();
        released
    }

    /// Returns the blocks at positions `first..end` that are after the null head.
    fn range_mut(&mut self, first: usize, end: usize) -> &mut [BlockId] {
        let (first, end) = (first.max(self.null_head), end.min(self.len()));
        if end <= first {
            return &mut [];
        }
        let [first, end] = [first, end].map(|position| self.start + position - self.null_head);
        &mut self.ids[first..end]
    }

    fn absorb_leading_nulls(&mut self) {
        if self.ids().first() != Some(&NULL_BLOCK) {
            return;
        }
        let nulls = num_leading_nulls(self.ids());
        self.null_head += nulls;
        self.start += nulls;
        if self.start > 64 && self.start * 2 > self.ids.len() {
            self.ids.drain(..self.start);
            self.start = 0;
        }
    }
}

fn num_leading_nulls(ids: &[BlockId]) -> usize {
    let are_nulls = |ids: &[BlockId; 16]| ids.iter().fold(0, |any, id| any | id) == NULL_BLOCK;
    let (parts, _) = ids.as_chunks();
    let num_whole = parts.iter().take_while(|part| are_nulls(part)).count() * 16;
    num_whole + ids[num_whole..].iter().take_while(|&&id| id == NULL_BLOCK).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_blocks_come_last_first_and_join_the_null_head() {
        let mut blocks = GroupBlocks::new(1, vec![5, 6, 7, 8]);
        assert_eq!(blocks.release_range(0, 3), [6, 5]);
        assert_eq!((blocks.null_head(), blocks.ids()), (3, &[7, 8][..]));
        assert_eq!(blocks.release_range(0, 3), [0; 0]);
        assert_eq!(blocks.release_range(0, 9), [8, 7]);
        assert_eq!(blocks.len(), 5);
        blocks.ids_mut().push(9);
        assert_eq!(blocks.iter().collect::<Vec<_>>(), [0, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn release_stops_at_a_null_block_inside() {
        let mut blocks = GroupBlocks::new(0, vec![5, 0, 7, 8]);
        assert_eq!(blocks.release_range(0, 3), [7]);
        assert_eq!(blocks.iter().collect::<Vec<_>>(), [5, 0, 0, 8]);
    }

    #[test]
    fn a_list_can_be_cut_inside_its_null_head() {
        let mut blocks = GroupBlocks::new(4, vec![1, 2]);
        blocks.truncate(5);
        assert_eq!(blocks.ids(), [1]);
        blocks.truncate(3);
        assert_eq!((blocks.len(), blocks.ids()), (3, &[][..]));
    }

    #[test]
    fn a_list_reads_the_same_by_position_and_in_order() {
        let blocks = GroupBlocks::new(2, vec![0, 5, 0, 7]);
        let ids: Vec<_> = blocks.iter().collect();
        assert_eq!(ids, [0, 0, 0, 5, 0, 7]);
        assert_eq!(
            (0..6).map(|i| blocks.get(i)).collect::<Vec<_>>(),
            ids.into_iter().map(Some).collect::<Vec<_>>()
        );
        assert_eq!(blocks.get(6), None);
        assert_eq!(blocks.ids_from(4), (4, &[0, 7][..]));
        assert_eq!(blocks.iter_owned_rev().collect::<Vec<_>>(), [7, 5]);
    }

    #[test]
    fn a_list_is_extended_by_another_from_a_position_on() {
        let other = GroupBlocks::new(3, vec![7, 8]);
        for (skip, expected) in [(0, &[5, 0, 0, 0, 7, 8][..]), (2, &[5, 0, 7, 8]), (4, &[5, 8])] {
            let mut blocks = GroupBlocks::new(0, vec![5]);
            blocks.extend_from(&other, skip);
            assert_eq!(blocks.iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn null_blocks_are_replaced_in_the_head_and_after_it() {
        let mut blocks = GroupBlocks::new(3, vec![7, 0, 8]);
        assert_eq!([0, 1, 4, 5, 6, 9].map(|at| blocks.num_nulls_from(at)), [4, 3, 1, 0, 0, 0]);
        assert_eq!(blocks.replace_nulls_from(1, &[4, 5, 6]), 1);
        assert_eq!(blocks.iter().collect::<Vec<_>>(), [0, 4, 5, 7, 6, 8]);
        assert_eq!(blocks.replace_nulls_from(1, &[]), 6);
        assert_eq!(blocks.iter().collect::<Vec<_>>(), [0, 4, 5, 7, 6, 8]);
    }

    #[test]
    fn a_long_table_forgets_what_joined_its_null_head() {
        let mut blocks = GroupBlocks::new(0, (1..=200).collect());
        for (end, kept) in [(64, 200), (100, 200), (101, 99), (164, 99), (166, 34)] {
            blocks.release_range(0, end);
            assert_eq!((blocks.len(), blocks.null_head()), (200, end));
            assert_eq!(blocks.get(end), Some(end as BlockId + 1));
            assert_eq!(blocks.ids.len(), kept);
        }
    }
}
