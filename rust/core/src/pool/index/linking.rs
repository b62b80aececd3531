//! Chains of blocks as the pool keeps them: cached blocks are linked, and the links are followed in
//! place of the index.

use super::full_blocks::FullBlocks;
use super::trie::{Link, NO_SEGMENT, Path, Slot};
use crate::block::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};
use crate::pool::block_pool::BlockPool;
use crate::pool::index::Place;

impl BlockPool {
    /// Chains of fewer hashes are not linked now.
    pub fn min_linked_hashes(&self) -> usize {
        self.chains.min_hashes()
    }

    /// The segment for blocks that are about to be cached from position `first` on, behind the one
    /// that serves the hash before the first of them: `before`, with the block that likely does. All hashes must be of one chain,
    /// each of which stands for all before it.
    pub fn open_chain(
        &mut self,
        group: GroupId,
        before: Option<(&BlockHash, BlockId)>,
        first: usize,
        block_size: usize,
    ) -> Slot {
        let Some((&hash, likely)) = before else {
            return self.chains.open(None, first, block_size);
        };
        let key = CacheKey { hash, group };
        let serves = self.states.serves(likely, &key);
        match serves.then_some(likely).or_else(|| self.find_own(&key)) {
            Some(block) => self.chains.open(Some(self.link_of(block)), first, block_size),
            None => NO_SEGMENT,
        }
    }

    /// Links blocks that were just cached for the segment that was opened for them. `all_serve`
    /// tells that none of them is a duplicate.
    pub fn link(&mut self, run: &FullBlocks<'_>, all_serve: bool) {
        if all_serve && !run.blocks.contains(&NULL_BLOCK) {
            self.chains.push(run.segment, run.first_position(), run.blocks);
        } else if run.segment != NO_SEGMENT {
            self.link_with_care(run);
        }
    }

    /// Links one key after the other, each by the block that serves it.
    #[cold]
    fn link_with_care(&mut self, run: &FullBlocks<'_>) {
        let mut slot = run.segment;
        for (i, position) in (0..run.blocks.len()).zip(run.first_position()..) {
            let key = CacheKey { hash: *run.hash(i), group: run.group };
            let Some(block) = self.find_own(&key) else { break };
            if self.chains.lists(self.link_of(block), position) {
                self.chains.close(slot);
            } else {
                self.cut_at(block);
                self.states.set_segment(block, slot);
                self.chains.push(slot, position, &[block]);
            }
            slot = self.chains.open(Some(self.link_of(block)), position + 1, run.block_size);
        }
        self.chains.close(slot);
    }

    fn link_of(&self, block: BlockId) -> Link {
        Link { block, slot: self.states.segment(block) }
    }

    /// The block that serves a key as its own hash.
    fn find_own(&self, key: &CacheKey) -> Option<BlockId> {
        self.find(key).filter(|&block| self.states.has_key(block, key))
    }

    /// Links the blocks of a prefix that a look-up found, from position `first` on: those before
    /// are linked already. Whether all could be linked.
    pub fn relink(&mut self, prefix: &[BlockId], first: usize, block_size: usize) -> bool {
        let is_linkable = |(i, &block): (usize, &BlockId)| {
            self.states.has_plain_key(block)
                && self.states.last_hash_num_tokens(block) == (first + i + 1) * block_size
        };
        let num = prefix[first..].iter().enumerate().take_while(|&item| is_linkable(item)).count();
        let blocks = &prefix[first..first + num];
        blocks.iter().for_each(|&block| self.cut_at(block));
        let before = first.checked_sub(1).map(|last| self.link_of(prefix[last]));
        let slot = self.chains.open(before, first, block_size);
        blocks.iter().for_each(|&block| self.states.set_segment(block, slot));
        self.chains.push(slot, first, blocks);
        first + num == prefix.len()
    }

    /// The chain of blocks up to the one that serves a hash at a position, if none is missing.
    pub fn linked_path(&self, group: GroupId, hash: BlockHash, position: usize) -> Option<Path> {
        let block = self.find_own(&CacheKey { hash, group })?;
        self.chains.path(self.link_of(block), position)
    }

    /// Adds the blocks of a chain, first to last, to a list.
    pub fn read_path(&self, path: &Path, out: &mut Vec<BlockId>) {
        self.chains.read(path, out);
    }

    /// Blocks that were cached serve their own keys no longer; some of them named a segment.
    #[inline(never)]
    pub(crate) fn cut_each(&mut self, mut blocks: &[(BlockId, Place)]) {
        while let Some(&(block, _)) = blocks.first() {
            let slot = self.states.last_segment(block);
            let num_popped = self.chains.pop(slot, blocks.iter().map(|&(block, _)| block));
            if num_popped == 0 && slot != NO_SEGMENT {
                self.chains.cut(Link { block, slot }, self.states.last_hash_num_tokens(block));
            }
            blocks = &blocks[num_popped.max(1)..];
        }
    }

    /// A block will not serve its own key any more.
    pub(crate) fn cut_at(&mut self, block: BlockId) {
        let link = self.link_of(block);
        if link.slot != NO_SEGMENT {
            self.chains.cut(link, self.states.last_hash_num_tokens(block));
        }
    }
}
