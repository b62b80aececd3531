//! Prefetches the records that hits and releases change.

use prefetch_index::prefetch_index;

use super::Blocks;
use crate::block::BlockId;

/// Yields the parts of a list of blocks, and prefetches the records of the following parts.
pub(crate) struct PrefetchedParts<I> {
    parts: I,
    ahead: I,
}

impl<'a, I: Iterator<Item = &'a [BlockId]> + Clone> PrefetchedParts<I> {
    const NUM_AHEAD: usize = 2;

    pub(crate) fn new(blocks: &Blocks, parts: I) -> Self {
        let mut ahead = parts.clone();
        ahead.by_ref().take(Self::NUM_AHEAD).for_each(|part| prefetch(blocks, part));
        Self { parts, ahead }
    }

    #[inline]
    pub(crate) fn next(&mut self, blocks: &Blocks) -> Option<&'a [BlockId]> {
        if let Some(part) = self.ahead.next() {
            prefetch(blocks, part);
        }
        self.parts.next()
    }
}

/// Prefetches every fourth block. This is enough because neighbours mostly share a cache line.
fn prefetch(blocks: &Blocks, ids: &[BlockId]) {
    let (fours, _) = ids.as_chunks::<4>();
    for &[block, ..] in fours {
        prefetch_index(&blocks.links, block as usize);
        prefetch_index(&blocks.usage, block as usize);
    }
}
