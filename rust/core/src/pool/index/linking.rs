//! PrefixTrie of blocks as the pool keeps them: cached blocks are linked, and the links are followed in
//! place of the index.

use super::full_blocks::FullBlocks;
use super::trie::{NO_SEGMENT, SegmentId, TrieBlock, TriePath};
use crate::block::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};
use crate::pool::block_pool::BlockPool;
use crate::pool::index::Place;

impl BlockPool {
    /// PrefixTrie of fewer hashes are not linked now.
    pub fn min_trie_hashes(&self) -> usize {
        self.trie.min_hashes()
    }

    /// The segment for blocks that are about to be cached from position `first` on, behind the one
    /// that serves the hash before the first of them: `before`, with the block that likely does. All hashes must be of one chain,
    /// each of which stands for all before it.
    pub fn open_segment(
        &mut self,
        group: GroupId,
        before: Option<(&BlockHash, BlockId)>,
        first: usize,
        block_size: usize,
    ) -> SegmentId {
        let Some((&hash, likely)) = before else {
            return self.trie.open(None, first, block_size);
        };
        let key = CacheKey { hash, group };
        let serves = self.blocks.serves(likely, &key);
        match serves.then_some(likely).or_else(|| self.find_own(&key)) {
            Some(block) => self.trie.open(Some(self.trie_block(block)), first, block_size),
            None => NO_SEGMENT,
        }
    }

    /// Links blocks that were just cached for the segment that was opened for them. `all_serve`
    /// tells that none of them is a duplicate.
    pub fn add_to_trie(&mut self, run: &FullBlocks<'_>, all_serve: bool) {
        if all_serve && !run.blocks.contains(&NULL_BLOCK) {
            self.trie.push(run.segment, run.first_position(), run.blocks);
        } else if run.segment != NO_SEGMENT {
            self.add_to_trie_one_by_one(run);
        }
    }

    /// Links one key after the other, each by the block that serves it.
    #[cold]
    fn add_to_trie_one_by_one(&mut self, run: &FullBlocks<'_>) {
        let mut slot = run.segment;
        for (i, position) in (0..run.blocks.len()).zip(run.first_position()..) {
            let key = CacheKey { hash: *run.hash(i), group: run.group };
            let Some(block) = self.find_own(&key) else { break };
            if self.trie.lists(self.trie_block(block), position) {
                self.trie.close(slot);
            } else {
                self.cut_at(block);
                self.blocks.set_segment(block, slot);
                self.trie.push(slot, position, &[block]);
            }
            slot = self.trie.open(Some(self.trie_block(block)), position + 1, run.block_size);
        }
        self.trie.close(slot);
    }

    fn trie_block(&self, block: BlockId) -> TrieBlock {
        TrieBlock { block, slot: self.blocks.segment(block) }
    }

    /// The block that serves a key as its own hash.
    fn find_own(&self, key: &CacheKey) -> Option<BlockId> {
        self.find(key).filter(|&block| self.blocks.has_key(block, key))
    }

    /// Links the blocks of a prefix that a look-up found, from position `first` on: those before
    /// are linked already. Whether all could be linked.
    pub fn add_prefix_to_trie(
        &mut self,
        prefix: &[BlockId],
        first: usize,
        block_size: usize,
    ) -> bool {
        let is_linkable = |(i, &block): (usize, &BlockId)| {
            self.blocks.has_plain_key(block)
                && self.blocks.last_hash_num_tokens(block) == (first + i + 1) * block_size
        };
        let num = prefix[first..].iter().enumerate().take_while(|&item| is_linkable(item)).count();
        let blocks = &prefix[first..first + num];
        blocks.iter().for_each(|&block| self.cut_at(block));
        let before = first.checked_sub(1).map(|last| self.trie_block(prefix[last]));
        let slot = self.trie.open(before, first, block_size);
        blocks.iter().for_each(|&block| self.blocks.set_segment(block, slot));
        self.trie.push(slot, first, blocks);
        first + num == prefix.len()
    }

    /// The chain of blocks up to the one that serves a hash at a position, if none is missing.
    pub fn trie_path(&self, group: GroupId, hash: BlockHash, position: usize) -> Option<TriePath> {
        let block = self.find_own(&CacheKey { hash, group })?;
        self.trie.path(self.trie_block(block), position)
    }

    /// Adds the blocks of a chain, first to last, to a list.
    pub fn read_path(&self, path: &TriePath, out: &mut Vec<BlockId>) {
        self.trie.read(path, out);
    }

    /// Blocks that were cached serve their own keys no longer; some of them named a segment.
    #[inline(never)]
    pub(crate) fn cut_each(&mut self, mut blocks: &[(BlockId, Place)]) {
        while let Some(&(block, _)) = blocks.first() {
            let slot = self.blocks.last_segment(block);
            let num_popped = self.trie.pop(slot, blocks.iter().map(|&(block, _)| block));
            if num_popped == 0 && slot != NO_SEGMENT {
                self.trie.cut(TrieBlock { block, slot }, self.blocks.last_hash_num_tokens(block));
            }
            blocks = &blocks[num_popped.max(1)..];
        }
    }

    /// A block will not serve its own key any more.
    pub(crate) fn cut_at(&mut self, block: BlockId) {
        let link = self.trie_block(block);
        if link.slot != NO_SEGMENT {
            self.trie.cut(link, self.blocks.last_hash_num_tokens(block));
        }
    }
}
