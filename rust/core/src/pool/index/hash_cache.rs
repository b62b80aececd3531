//! A cache of the fingerprint bits that a request's hashes share in all groups. Groups with the
//! same block size cache the same hashes, one group after another.

use crate::pool::blocks::{FullBlocks, KeyLayout};

/// The fingerprint bits of consecutive blocks of one request.
#[derive(Debug, Default)]
pub(crate) struct HashCache {
    is_kept: bool,
    block_size: usize,
    /// The position of the first of these blocks in the request.
    first_position: usize,
    bits: Vec<u32>,
}

impl HashCache {
    /// Empties the cache and switches it on or off. While it is on, all batches must be from one
    /// request.
    pub(crate) fn keep(&mut self, on: bool) {
        self.is_kept = on;
        self.bits.clear();
    }

    /// Returns the bits of a batch's hashes, one item per block; `None` if the cache is off.
    pub(super) fn of(&mut self, batch: &FullBlocks<'_>) -> Option<&[u32]> {
        if !self.is_kept {
            return None;
        }
        let first = match self.index_of(batch) {
            Some(first) => first,
            None => {
                self.bits.clear();
                self.block_size = batch.block_size;
                self.first_position = batch.first_position();
                0
            }
        };
        let end = first + batch.blocks.len();
        let missing = self.bits.len()..end;
        self.bits.extend(missing.map(|i| KeyLayout::bits(batch.hash(i - first))));
        Some(&self.bits[first..end])
    }

    /// Returns the index of a batch's first block, if the cache has it or ends right before it.
    fn index_of(&self, batch: &FullBlocks<'_>) -> Option<usize> {
        let index = batch.first_position().checked_sub(self.first_position)?;
        let has_size = batch.block_size == self.block_size && !self.bits.is_empty();
        (has_size && index <= self.bits.len()).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockHash, BlockId};
    use crate::pool::blocks::NO_SEGMENT;

    /// Returns the blocks `first..end` of a request, with one or two hashes each.
    fn batch<'a>(
        hashes: &'a [BlockHash],
        blocks: &'a [BlockId],
        first: usize,
        per_block: usize,
    ) -> FullBlocks<'a> {
        FullBlocks {
            group: 0,
            blocks,
            hashes: &hashes[(first + 1) * per_block - 1..],
            per_block,
            first_num_tokens: (first + 1) * per_block * 16,
            block_size: per_block * 16,
            segment: NO_SEGMENT,
        }
    }

    #[test]
    fn bits_are_those_of_the_hashes_whichever_were_asked_for_before() {
        let hashes: Vec<_> = (1..=40).map(|n| BlockHash([n, n * n, 3, 4])).collect();
        let blocks: Vec<_> = (1..=40).collect();
        let mut cache = HashCache::default();
        assert!(cache.of(&batch(&hashes, &blocks[..4], 0, 1)).is_none());
        cache.keep(true);
        let asked = [(0, 8, 1), (8, 8, 1), (4, 8, 1), (12, 8, 1), (30, 4, 1), (0, 4, 1), (3, 4, 2)];
        for (first, n, per_block) in asked.into_iter().cycle().take(20) {
            let batch = batch(&hashes, &blocks[..n], first, per_block);
            let expected: Vec<_> = (0..n).map(|i| KeyLayout::bits(batch.hash(i))).collect();
            assert_eq!(cache.of(&batch), Some(&expected[..]), "{n} from {first}");
        }
        let others: Vec<_> = hashes.iter().map(|hash| BlockHash([hash.0[0], 0, 0, 5])).collect();
        cache.keep(true);
        let other = batch(&others, &blocks[..1], 0, 1);
        assert_eq!(cache.of(&other), Some(&[KeyLayout::bits(&others[0])][..]));
    }
}
