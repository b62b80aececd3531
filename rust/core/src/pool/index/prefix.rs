//! Adds cached blocks to the prefix trie and removes them. Look-ups of long prefixes use the trie
//! instead of the table.

use super::trie::{PrefixTrie, TrieBlock, TriePath};
use super::{Home, PrefixIndex};
use crate::block::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};
use crate::pool::blocks::{Blocks, FullBlocks, NO_SEGMENT, SegmentId};

impl PrefixIndex {
    /// The smallest length, in hashes, of prefixes in the trie.
    pub(crate) const MIN_TRIE_HASHES: usize = PrefixTrie::MIN_HASHES;

    /// Returns the smallest length, in hashes, of prefixes that are added to the trie now. It grows
    /// when segment ids are scarce.
    pub(crate) fn min_trie_hashes(&self) -> usize {
        self.trie.min_hashes()
    }

    /// Returns the segment for blocks that will be cached from position `first` on. `before` is the
    /// hash of the block before them, with the block that probably serves it. Each hash must
    /// determine all hashes before it.
    pub(crate) fn open_segment(
        &mut self,
        blocks: &Blocks,
        group: GroupId,
        before: Option<(&BlockHash, BlockId)>,
        first: usize,
        block_size: usize,
    ) -> SegmentId {
        let Some((&hash, likely)) = before else {
            return self.trie.open(None, first, block_size);
        };
        let key = CacheKey { hash, group };
        let serves = blocks.serves(likely, &key);
        match serves.then_some(likely).or_else(|| self.find_own(blocks, &key)) {
            Some(block) => self.trie.open(Some(trie_block(blocks, block)), first, block_size),
            None => NO_SEGMENT,
        }
    }

    /// Adds newly cached blocks to the segment that was opened for them. `all_serve` is true if
    /// none of them is a duplicate.
    pub(crate) fn add_to_trie(
        &mut self,
        blocks: &mut Blocks,
        cached: &FullBlocks<'_>,
        all_serve: bool,
    ) {
        if all_serve && !cached.blocks.contains(&NULL_BLOCK) {
            self.trie.push(cached.segment, cached.first_position(), cached.blocks);
        } else if cached.segment != NO_SEGMENT {
            self.add_each_to_trie(blocks, cached);
        }
    }

    /// Adds the blocks that serve the keys, one key after another.
    #[cold]
    fn add_each_to_trie(&mut self, blocks: &mut Blocks, cached: &FullBlocks<'_>) {
        let mut segment = cached.segment;
        for (i, position) in (0..cached.blocks.len()).zip(cached.first_position()..) {
            let key = CacheKey { hash: *cached.hash(i), group: cached.group };
            let Some(block) = self.find_own(blocks, &key) else { break };
            if self.trie.lists(trie_block(blocks, block), position) {
                self.trie.close(segment);
            } else {
                self.cut_at(blocks, block);
                blocks.set_segment(block, segment);
                self.trie.push(segment, position, &[block]);
            }
            let before = Some(trie_block(blocks, block));
            segment = self.trie.open(before, position + 1, cached.block_size);
        }
        self.trie.close(segment);
    }

    /// Returns the block that serves a key as its own key.
    fn find_own(&self, blocks: &Blocks, key: &CacheKey) -> Option<BlockId> {
        self.find(blocks, key).filter(|&block| blocks.has_key(block, key))
    }

    /// Adds the blocks of a prefix that a look-up found, from position `first` on. The blocks
    /// before are already in the trie. Returns whether all could be added.
    pub(crate) fn add_prefix_to_trie(
        &mut self,
        blocks: &mut Blocks,
        prefix: &[BlockId],
        first: usize,
        block_size: usize,
    ) -> bool {
        let fits = |(i, &block): (usize, &BlockId)| {
            blocks.has_plain_key(block)
                && blocks.last_hash_num_tokens(block) == (first + i + 1) * block_size
        };
        let num = prefix[first..].iter().enumerate().take_while(|&item| fits(item)).count();
        let added = &prefix[first..first + num];
        added.iter().for_each(|&block| self.cut_at(blocks, block));
        let before = first.checked_sub(1).map(|last| trie_block(blocks, prefix[last]));
        let segment = self.trie.open(before, first, block_size);
        added.iter().for_each(|&block| blocks.set_segment(block, segment));
        self.trie.push(segment, first, added);
        first + num == prefix.len()
    }

    /// Returns the path to the block that serves a hash at a position; `None` if a block is
    /// missing.
    pub(crate) fn trie_path(
        &self,
        blocks: &Blocks,
        group: GroupId,
        hash: BlockHash,
        position: usize,
    ) -> Option<TriePath> {
        let block = self.find_own(blocks, &CacheKey { hash, group })?;
        self.trie.path(trie_block(blocks, block), position)
    }

    /// Appends the blocks of a path, from first to last, to `out`.
    pub(crate) fn read_path(&self, path: &TriePath, out: &mut Vec<BlockId>) {
        self.trie.read(path, out);
    }

    /// Removes blocks from the trie that no longer serve their own keys. Some of them need not be
    /// in it.
    #[inline(never)]
    pub(super) fn cut_each(&mut self, blocks: &Blocks, mut evicted: &[(BlockId, Home)]) {
        while let Some(&(block, _)) = evicted.first() {
            let segment = blocks.last_segment(block);
            let num_popped = self.trie.pop(segment, evicted.iter().map(|&(block, _)| block));
            if num_popped == 0 && segment != NO_SEGMENT {
                let num_tokens = blocks.last_hash_num_tokens(block);
                self.trie.cut(TrieBlock { block, segment }, num_tokens);
            }
            evicted = &evicted[num_popped.max(1)..];
        }
    }

    /// Removes a block from the trie before it loses its own key.
    pub(super) fn cut_at(&mut self, blocks: &Blocks, block: BlockId) {
        let block = trie_block(blocks, block);
        if block.segment != NO_SEGMENT {
            self.trie.cut(block, blocks.last_hash_num_tokens(block.block));
        }
    }
}

fn trie_block(blocks: &Blocks, block: BlockId) -> TrieBlock {
    TrieBlock { block, segment: blocks.segment(block) }
}
