//! The block hashes of a request, in the form that look-ups and caching read.

use std::ops::Range;

use crate::block::BlockHash;
use crate::error::{Error, Result};

/// A chain of block hashes. Hashes are read one by one, because a look-up in a group of large
/// blocks needs few of them.
pub trait HashSource {
    /// Returns the number of hashes.
    fn len(&self) -> usize;

    /// Returns the hash at a position below [`Self::len`].
    fn get(&self, index: usize) -> Result<BlockHash>;

    /// Returns whether each hash is known to cover all hashes before it.
    fn is_chain(&self) -> bool {
        false
    }

    /// Adds `n` hashes to `out`: the hashes at `first`, `first + step` and so on. All positions are
    /// below [`Self::len`].
    fn read(&self, first: usize, step: usize, n: usize, out: &mut Vec<BlockHash>) -> Result<()> {
        for i in 0..n {
            out.push(self.get(first + i * step)?);
        }
        Ok(())
    }

    /// Returns whether the chain has no hash.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The part of a chain of hashes that an allocation needs.
#[derive(Clone, Copy, Debug)]
pub struct HashWindow<'a> {
    start: usize,
    hashes: &'a [BlockHash],
    chain_len: usize,
    is_chain: bool,
}

impl<'a> HashWindow<'a> {
    /// Creates a window with the hashes from position `start` to the end of a chain.
    pub fn new(start: usize, hashes: &'a [BlockHash]) -> Self {
        Self { start, hashes, chain_len: start + hashes.len(), is_chain: false }
    }

    /// Returns the same hashes as part of a longer chain, which has `chain_len` hashes.
    pub fn of_chain(self, chain_len: usize) -> Self {
        debug_assert!(self.chain_len <= chain_len);
        Self { chain_len, ..self }
    }

    /// Returns the same hashes. `is_chain` is true if each is known to cover all hashes before it.
    pub fn chained(self, is_chain: bool) -> Self {
        Self { is_chain, ..self }
    }

    /// Returns the number of hashes of the whole chain.
    pub(crate) fn chain_len(&self) -> usize {
        self.chain_len
    }

    /// Returns the hash at a position of the chain, if the window has it.
    pub fn get_at(&self, index: usize) -> Option<&'a BlockHash> {
        self.hashes.get(index.checked_sub(self.start)?)
    }

    /// Returns the hash at a position of the chain. The window must have it.
    pub fn at(&self, index: usize) -> BlockHash {
        self.hashes[index - self.start]
    }

    /// Returns the hashes from the hash of a full block on. The block has `per_block` hashes.
    pub(crate) fn hashes_from_block(&self, index: usize, per_block: usize) -> &'a [BlockHash] {
        &self.hashes[(index + 1) * per_block - 1 - self.start..]
    }

    /// Returns the hash of a full block of `per_block` hashes.
    pub fn of_block(&self, index: usize, per_block: usize) -> BlockHash {
        self.hashes_from_block(index, per_block)[0]
    }
}

impl<'a> From<&'a [BlockHash]> for HashWindow<'a> {
    fn from(hashes: &'a [BlockHash]) -> Self {
        Self::new(0, hashes)
    }
}

impl HashSource for HashWindow<'_> {
    fn len(&self) -> usize {
        self.chain_len()
    }

    fn get(&self, index: usize) -> Result<BlockHash> {
        Ok(self.at(index))
    }

    fn is_chain(&self) -> bool {
        self.is_chain
    }
}

/// The hashes of a request, one for each block of a group. Hashes are chained, so the hash of a
/// block is the hash of the last hash block inside it.
#[derive(Clone, Copy)]
pub struct GroupHashes<'a> {
    hashes: &'a dyn HashSource,
    per_block: usize,
}

impl<'a> GroupHashes<'a> {
    /// Creates the hashes of blocks of `block_size` tokens, from hashes of every `hash_block_size`
    /// tokens.
    pub fn new(hashes: &'a dyn HashSource, hash_block_size: usize, block_size: usize) -> Self {
        Self { hashes, per_block: block_size / hash_block_size }
    }

    /// Returns the number of full blocks that have a hash.
    pub fn len(&self) -> usize {
        self.hashes.len() / self.per_block
    }

    /// Returns whether each hash is known to cover all hashes before it.
    pub fn is_chain(&self) -> bool {
        self.hashes.is_chain()
    }

    /// Returns whether no block has a hash.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the hash of a block.
    pub fn get(&self, index: usize) -> Result<BlockHash> {
        self.hashes.get((index + 1) * self.per_block - 1)
    }

    /// Adds the hashes of blocks to `out`.
    pub fn read(&self, blocks: Range<usize>, out: &mut Vec<BlockHash>) -> Result<()> {
        let first = (blocks.start + 1) * self.per_block - 1;
        self.hashes.read(first, self.per_block, blocks.len(), out)
    }

    /// Checks that the first `num_blocks` blocks have hashes.
    pub fn require(&self, num_blocks: usize) -> Result<()> {
        if num_blocks <= self.len() {
            return Ok(());
        }
        Err(Error::BlockHash(format!(
            "the look-up needs the hashes of {num_blocks} blocks, but the request has only {}. \
             Hash its tokens first, or request a shorter hit",
            self.len()
        )))
    }
}

impl std::fmt::Debug for GroupHashes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hashes of {} blocks", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(len: u64) -> Vec<BlockHash> {
        (0..len).map(|n| BlockHash([n, 0, 0, 0])).collect()
    }

    #[test]
    fn a_window_is_read_by_the_positions_of_the_chain() {
        let hashes = chain(10);
        let window = HashWindow::new(4, &hashes[4..]);
        assert_eq!((window.chain_len(), window.is_empty()), (10, false));
        assert!(HashWindow::new(0, &[]).is_empty());
        assert_eq!([4, 6, 9].map(|i| window.at(i)), [4, 6, 9].map(|i| hashes[i]));
        assert_eq!(window.get(6), Ok(hashes[6]));
        // The hash of a block of three hashes is the last of them.
        assert_eq!([1, 2].map(|block| window.of_block(block, 3)), [5, 8].map(|i| hashes[i]));
        assert_eq!(window.hashes_from_block(1, 3), &hashes[5..]);
        let part = HashWindow::new(4, &hashes[4..7]).of_chain(10);
        assert_eq!(
            (part.chain_len(), part.get_at(6), part.get_at(7)),
            (10, Some(&hashes[6]), None)
        );
    }

    #[test]
    fn a_group_of_larger_blocks_sees_the_last_hash_of_each() {
        let hashes = chain(10);
        let window = HashWindow::from(&hashes[..]);
        let blocks = GroupHashes::new(&window, 4, 12);
        assert_eq!((blocks.len(), blocks.is_empty()), (3, false));
        assert!(GroupHashes::new(&window, 1, 11).is_empty());
        let mut read = Vec::new();
        blocks.read(1..3, &mut read).expect("blocks of the chain");
        assert_eq!(read, [5, 8].map(|i| hashes[i]));
        assert_eq!([0, 2].map(|i| blocks.get(i)), [2, 8].map(|i| Ok(hashes[i])));
        assert!(blocks.require(3).is_ok() && blocks.require(4).is_err());
        assert_eq!(format!("{blocks:?}"), "hashes of 3 blocks");
    }
}
