//! The calls of `adaptive`: stores of blocks that the pool evicts soon.

use std::cell::OnceCell;

use hashbrown::HashTable;

use super::chunks::{ChunkId, Cursor};
use super::event::HostEventKind;
use super::key::hash_of;
use super::request::HostRequest;
use super::tier::HostTier;
use crate::block::{BlockId, CacheKey};
use crate::pool::{BlockPool, LeavingBlock};

/// How many keys of an order are visited for each chunk that is missing.
const MOST_VISITED: usize = 64;

/// The stores of blocks that the pool evicts soon, and the keys that are evicted for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeavingStores {
    /// The blocks to store.
    pub stored: Vec<LeavingBlock>,
    /// The chunk of each of them.
    pub chunks: Vec<ChunkId>,
    /// The keys that were evicted for them, in order.
    pub evicted: Vec<CacheKey>,
    /// The blocks of the order whose keys were evicted or not stored.
    pub passed: Vec<BlockId>,
}

impl HostTier {
    /// Gives blocks that the pool evicts soon a pending chunk each, as far as there is room. The
    /// blocks come in the order in which the pool evicts them, each key once. A block that has a
    /// chunk is not stored again; its chunk counts as the last one whose block left the pool.
    ///
    /// Without room, copies go first: chunks whose blocks the pool has. Of the other chunks and of
    /// the blocks to be stored, those go that are first in `order`.
    pub fn store_leaving(
        &mut self,
        pool: &BlockPool,
        leaving: impl Iterator<Item = LeavingBlock>,
        order: impl Iterator<Item = LeavingBlock>,
    ) -> LeavingStores {
        let most = leaving.size_hint().1.unwrap_or(0);
        let (mut absent, mut cursor) = (Vec::with_capacity(most), Cursor::forwards());
        for block in leaving {
            match self.chunks.find_next(&block.key, &mut cursor) {
                Some(chunk) => self.policy.set_copy(chunk, false),
                None => absent.push(block),
            }
        }
        let num_missing = absent.len().saturating_sub(self.chunks.num_free());
        let is_in_pool = |key: &CacheKey| pool.find(key).is_some();
        let mut evicted = self.policy.evict_copies(&mut self.chunks, num_missing, is_in_pool);
        let num_missing = num_missing - evicted.len();
        let (in_order, passed) = self.make_room_in_order(num_missing, &mut absent, order);
        evicted.extend(in_order);
        self.record_event(HostEventKind::Removed, &evicted);
        absent.truncate(self.chunks.num_free());
        let mut nobody = HostRequest::default();
        let insert = |block: &LeavingBlock| {
            let chunk = self.chunks.insert(block.key);
            self.policy.on_insert(&self.chunks, &mut nobody, chunk, None);
            chunk
        };
        let chunks = absent.iter().map(insert).collect();
        LeavingStores { stored: absent, chunks, evicted, passed }
    }

    /// Evicts chunks and takes blocks out of `absent`, `n` in total, those first that are first in
    /// `order`. If too few are near its start, the chunks follow whose blocks left the pool the
    /// longest time ago. Returns the evicted keys, and the blocks of `order` that it took.
    fn make_room_in_order(
        &mut self,
        n: usize,
        absent: &mut Vec<LeavingBlock>,
        order: impl Iterator<Item = LeavingBlock>,
    ) -> (Vec<CacheKey>, Vec<BlockId>) {
        if n == 0 {
            return Default::default();
        }
        let absent_keys = OnceCell::new();
        let place_of = |key: &CacheKey| {
            let table = absent_keys.get_or_init(|| table_of(absent));
            table.find(hash_of(key), |&at| absent[at].key == *key).copied()
        };
        let (mut evicted, mut passed) = (Vec::with_capacity(n), Vec::with_capacity(n));
        let mut is_dropped = vec![false; absent.len()];
        let mut cursor = Cursor::forwards();
        for LeavingBlock { block, key, .. } in order.take(n.saturating_mul(MOST_VISITED)) {
            if passed.len() == n {
                break;
            }
            match self.chunks.find_next(&key, &mut cursor) {
                Some(chunk) if self.free_chunk(chunk) => evicted.push(key),
                Some(_) => continue,
                None => match place_of(&key) {
                    Some(at) => is_dropped[at] = true,
                    None => continue,
                },
            }
            passed.push(block);
        }
        let mut are_dropped = is_dropped.into_iter();
        absent.retain(|_| !are_dropped.next().unwrap_or_default());
        evicted.extend(self.policy.evict(&mut self.chunks, n - passed.len()));
        (evicted, passed)
    }

    /// Notes that loads wait for so many stores. Copies of blocks that the pool has are kept then.
    pub fn note_waited(&mut self, num_stores: usize) {
        self.policy.note_waited(num_stores, self.chunks.capacity());
    }

    /// Returns whether a step waits for stores: whether enough chunks were loaded for those stored.
    pub fn stores_pay(&mut self) -> bool {
        self.policy.stores_pay(self.chunks.capacity())
    }

    /// Notes that blocks would have been hit which neither memory has any more.
    pub fn note_lost(&mut self, num_blocks: usize) {
        self.policy.note_lost(num_blocks);
    }

    /// Frees a chunk, if it can be evicted. Returns whether it could.
    fn free_chunk(&mut self, chunk: ChunkId) -> bool {
        let is_evictable = self.chunks.is_evictable(chunk);
        if is_evictable {
            self.policy.on_remove(chunk);
            self.chunks.remove(chunk);
        }
        is_evictable
    }

    /// Frees the chunks of keys. Chunks that are stored or loaded now stay. Returns how many became
    /// free.
    pub fn give_up(&mut self, keys: impl Iterator<Item = CacheKey>) -> usize {
        let mut cursor = Cursor::forwards();
        let mut is_freed = |key: &CacheKey| {
            let chunk = self.chunks.find_next(key, &mut cursor);
            chunk.is_some_and(|chunk| self.free_chunk(chunk))
        };
        let given_up: Vec<_> = keys.filter(|key| is_freed(key)).collect();
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

/// Returns a table of the places of blocks by their keys.
fn table_of(blocks: &[LeavingBlock]) -> HashTable<usize> {
    let hash_at = |&at: &usize| hash_of(&blocks[at].key);
    let mut table = HashTable::with_capacity(blocks.len());
    for at in 0..blocks.len() {
        table.insert_unique(hash_at(&at), at, hash_at);
    }
    table
}
