//! The calls of `adaptive`: stores of blocks that the pool evicts soon.

use super::chunks::{ChunkId, Cursor};
use super::event::HostEventKind;
use super::request::HostRequest;
use super::tier::HostTier;
use crate::block::CacheKey;
use crate::pool::{BlockPool, LeavingBlock};

/// The stores of blocks that the pool evicts soon, and the keys that are evicted for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeavingStores {
    /// The blocks to store.
    pub stored: Vec<LeavingBlock>,
    /// The chunk of each of them.
    pub chunks: Vec<ChunkId>,
    /// The keys that were evicted for them, in order.
    pub evicted: Vec<CacheKey>,
}

impl HostTier {
    /// Gives blocks that the pool evicts soon a pending chunk each, as far as there is room. The
    /// blocks come in the order in which the pool evicts them, each key once. A block that has a
    /// chunk is not stored again; its chunk counts as the last one whose block left the pool.
    pub fn store_leaving(
        &mut self,
        pool: &BlockPool,
        leaving: impl Iterator<Item = LeavingBlock>,
    ) -> LeavingStores {
        let mut absent = Vec::new();
        for block in leaving {
            match self.chunks.find(&block.key) {
                Some(chunk) => self.policy.set_copy(chunk, false),
                None => absent.push(block),
            }
        }
        let num_missing = absent.len().saturating_sub(self.chunks.num_free());
        let is_in_pool = |key: &CacheKey| pool.find(key).is_some();
        let evicted = self.policy.evict(&mut self.chunks, num_missing, is_in_pool);
        self.record_event(HostEventKind::Removed, &evicted);
        absent.truncate(self.chunks.num_free());
        let mut nobody = HostRequest::default();
        let insert = |block: &LeavingBlock| {
            let chunk = self.chunks.insert(block.key);
            self.policy.on_insert(&self.chunks, &mut nobody, chunk, None);
            chunk
        };
        let chunks = absent.iter().map(insert).collect();
        LeavingStores { stored: absent, chunks, evicted }
    }

    /// Frees the chunks of keys. Chunks that are stored or loaded now stay. Returns how many became
    /// free.
    pub fn give_up(&mut self, keys: impl Iterator<Item = CacheKey>) -> usize {
        let mut given_up = Vec::new();
        for key in keys {
            if let Some(chunk) = self.chunks.find(&key)
                && self.chunks.is_evictable(chunk)
            {
                self.policy.on_remove(chunk);
                self.chunks.remove(chunk);
                given_up.push(key);
            }
        }
        self.record_event(HostEventKind::Removed, &given_up);
        given_up.len()
    }

    /// Notes that requests use the blocks of keys in the pool, which keeps them for now.
    pub fn note_used_in_pool(&mut self, keys: impl Iterator<Item = CacheKey>) {
        let mut cursor = Cursor::forwards();
        for key in keys {
            if let Some(chunk) = self.chunks.find_next(&key, &mut cursor) {
                self.policy.set_copy(chunk, true);
            }
        }
    }
}
