//! Full blocks that become cached.

use super::SegmentId;
use crate::block::{BlockHash, BlockId, GroupId};

/// Consecutive full blocks of one request in one group, which become cached.
#[derive(Clone, Copy, Debug)]
pub struct FullBlocks<'a> {
    /// The group.
    pub group: GroupId,
    /// The blocks.
    pub blocks: &'a [BlockId],
    /// The request's hashes, from the first block's hash on.
    pub hashes: &'a [BlockHash],
    /// Hashes per block.
    pub per_block: usize,
    /// The number of tokens up to the end of the first block.
    pub first_num_tokens: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// The segment of the trie for the blocks, or [`NO_SEGMENT`](super::NO_SEGMENT).
    pub segment: SegmentId,
}

impl<'a> FullBlocks<'a> {
    /// Splits the blocks into batches of `size` blocks.
    pub fn batches(self, size: usize) -> impl Iterator<Item = FullBlocks<'a>> {
        self.blocks.chunks(size).enumerate().map(move |(i, blocks)| FullBlocks {
            blocks,
            hashes: &self.hashes[i * size * self.per_block..],
            first_num_tokens: self.num_tokens(i * size),
            ..self
        })
    }

    /// Returns the blocks from index `first` on.
    pub(crate) fn since(self, first: usize) -> Self {
        Self {
            blocks: &self.blocks[first..],
            hashes: self.hashes.get(first * self.per_block..).unwrap_or(&[]),
            first_num_tokens: self.num_tokens(first),
            ..self
        }
    }

    /// Returns the position of the first block in its prefix.
    pub(crate) fn first_position(&self) -> usize {
        self.first_num_tokens / self.block_size - 1
    }
}

impl FullBlocks<'_> {
    pub(crate) fn hash(&self, i: usize) -> &BlockHash {
        &self.hashes[i * self.per_block]
    }

    pub(crate) fn num_tokens(&self, i: usize) -> usize {
        self.first_num_tokens + i * self.block_size
    }

    /// Returns how many of the blocks are filled by the first `num_tokens` tokens.
    pub(crate) fn num_filled_by(&self, num_tokens: usize) -> usize {
        let Some(beyond) = num_tokens.checked_sub(self.first_num_tokens) else {
            return 0;
        };
        (beyond / self.block_size + 1).min(self.blocks.len())
    }
}
