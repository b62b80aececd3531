//! The prefix cache of a pool: what the index does, and what eviction has to know of it.

use crate::block::{BlockHash, BlockId, CacheKey, GroupId};
use crate::error::{Error, Result};
use crate::pool::block_pool::BlockPool;
use crate::pool::blocks::FullBlocks;
use crate::pool::blocks::SegmentId;
use crate::pool::eviction::EvictionHints;
use crate::pool::index::AliasKeys;
use crate::pool::index::RemovalLog;
use crate::pool::index::TriePath;

impl BlockPool {
    /// Returns the block that serves a key: the first of those that have it.
    pub fn find(&self, key: &CacheKey) -> Option<BlockId> {
        self.index.find(&self.blocks, key)
    }

    /// Returns the blocks that have a key, in the order in which they got it.
    pub fn blocks_of(&self, key: &CacheKey) -> Vec<BlockId> {
        self.index.blocks_of(&self.blocks, key)
    }

    /// Returns every key, in no particular order.
    pub fn keys(&self) -> impl Iterator<Item = CacheKey> + '_ {
        self.index.keys(&self.blocks)
    }

    /// Returns every key of a block, its own hash first.
    pub fn keys_of(&self, block: BlockId) -> impl Iterator<Item = CacheKey> + '_ {
        self.index.keys_of(&self.blocks, block)
    }

    /// Whether a block has a key, as its own hash or as an alias.
    pub fn has_key(&self, block: BlockId, key: &CacheKey) -> bool {
        self.index.has_key(&self.blocks, block, key)
    }

    /// Returns the path in the trie up to the block that serves a hash at a position.
    pub(crate) fn trie_path(
        &self,
        group: GroupId,
        hash: BlockHash,
        position: usize,
    ) -> Option<TriePath> {
        self.index.trie_path(&self.blocks, group, hash, position)
    }

    /// Caches full blocks: see [`PrefixIndex::cache_batch`].
    #[inline(never)]
    pub fn cache_batch(&mut self, batch: &FullBlocks<'_>, hints: EvictionHints) -> bool {
        let Self { blocks, index, eviction, .. } = self;
        let all_serve = index.cache_batch(blocks, batch, |blocks, first, duplicate| {
            eviction.replaced(blocks, first, duplicate);
        });
        eviction.cached(blocks, batch, hints);
        all_serve
    }

    /// Caches a block under a key: as its own if it has none, as an alias otherwise. `num_tokens` is
    /// the length of the prefix that the key stands for.
    pub fn insert_key(&mut self, block: BlockId, key: CacheKey, num_tokens: usize) {
        if self.index.insert(&mut self.blocks, block, key, num_tokens) {
            self.eviction.cached_alone(&mut self.blocks, block, &key);
        }
    }

    /// Caches a block under a key from outside, whose `num_tokens` may be wrong.
    pub fn insert_foreign_key(
        &mut self,
        block: BlockId,
        key: CacheKey,
        num_tokens: usize,
    ) -> Result<()> {
        if !self.index.has_group(key.group) {
            return Err(Error::Block(format!(
                "a block cannot be cached in group {}, which this pool does not have",
                key.group
            )));
        }
        self.removals_mut().give_up();
        self.insert_key(block, key, num_tokens);
        Ok(())
    }

    /// Gives every key of a block to another block, which has none. There is no event.
    pub fn move_keys(&mut self, from: BlockId, to: BlockId) {
        let is_pinned = self.blocks.is_pinned(from);
        self.index.move_keys(&mut self.blocks, from, to);
        if let Some(key) = self.blocks.key(to) {
            self.eviction.cached_alone(&mut self.blocks, to, &key);
        }
        self.eviction.moved(&mut self.blocks, from, to);
        // Only cached blocks go to the pinned tier.
        self.blocks.set_pinned(to, is_pinned && self.blocks.is_cached(to));
    }

    /// Removes every key of a block, each with an event.
    pub fn remove_keys(&mut self, block: BlockId) {
        self.index.remove_keys(&mut self.blocks, block);
    }

    /// Removes every key of a block without an event.
    pub fn remove_keys_silently(&mut self, block: BlockId) {
        self.index.remove_keys_silently(&mut self.blocks, block);
    }

    /// Returns the segment of the trie for blocks that are about to be cached: see
    /// [`PrefixIndex::open_segment`].
    pub(crate) fn open_segment(
        &mut self,
        group: GroupId,
        before: Option<(&BlockHash, BlockId)>,
        first: usize,
        block_size: usize,
    ) -> SegmentId {
        self.index.open_segment(&self.blocks, group, before, first, block_size)
    }

    /// Adds blocks that were just cached to their segment of the trie.
    pub(crate) fn add_to_trie(&mut self, cached: &FullBlocks<'_>, all_serve: bool) {
        self.index.add_to_trie(&mut self.blocks, cached, all_serve);
    }

    /// Adds the blocks of a prefix to the trie: see [`PrefixIndex::add_prefix_to_trie`].
    pub(crate) fn add_prefix_to_trie(
        &mut self,
        prefix: &[BlockId],
        first: usize,
        block_size: usize,
    ) -> bool {
        self.index.add_prefix_to_trie(&mut self.blocks, prefix, first, block_size)
    }

    /// Keeps the bits of hashes from now on, or no longer: until then, all blocks that are cached are
    /// of one request, in several groups.
    pub(crate) fn keep_hash_cache(&mut self, on: bool) {
        self.index.hash_cache_mut().keep(on);
    }

    /// Returns the log of removed keys.
    pub(crate) fn removals_mut(&mut self) -> &mut RemovalLog {
        self.index.removals_mut()
    }

    /// Returns the alias keys.
    pub fn alias_keys_mut(&mut self) -> &mut AliasKeys {
        self.index.alias_keys_mut()
    }
}
