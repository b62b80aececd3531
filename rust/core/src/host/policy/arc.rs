//! Adaptive replacement: chunks used once (T1), chunks used again (T2), and the ghosts of what was
//! evicted from each (B1, B2).

use super::reservation::reserved_list;
use crate::block::CacheKey;
use crate::host::chunks::{ChunkId, Chunks, Cursor};
use crate::host::links::{Links, NONE, Order};
use crate::host::ordered_keys::OrderedKeys;
use crate::host::request::Seen;

const T1: usize = 0;
const T2: usize = 1;

#[derive(Debug, Default)]
pub(crate) struct Arc {
    capacity: usize,
    /// T1 and T2.
    lists: [Order; 2],
    links: Links,
    /// The list of each chunk that has a key.
    list_of: Vec<u8>,
    /// B1 and B2.
    ghosts: [OrderedKeys; 2],
    /// The size that T1 should have. A number with a fraction, as vLLM's.
    target: f64,
}

impl Arc {
    pub(super) fn new(capacity: usize) -> Self {
        let (links, list_of) = (Links::new(reserved_list(capacity)), reserved_list(capacity));
        Self { capacity, links, list_of, ..Self::default() }
    }

    /// Moves the target if an absent key has a ghost, which becomes the youngest.
    pub(super) fn adapt(&mut self, key: &CacheKey) {
        let [b1, b2] = &mut self.ghosts;
        let step = |others: usize, own: usize| f64::max(1.0, others as f64 / own as f64);
        if b1.move_to_end(key) {
            self.target = (self.target + step(b2.len(), b1.len())).min(self.capacity as f64);
        } else if b2.move_to_end(key) {
            self.target = (self.target - step(b1.len(), b2.len())).max(0.0);
        }
    }

    pub(super) fn on_insert(&mut self, key: &CacheKey, chunk: ChunkId) {
        if chunk as usize >= self.list_of.len() {
            self.list_of.resize(chunk as usize + 1, T1 as u8);
        }
        self.list_of[chunk as usize] = T1 as u8;
        self.lists[T1].push(&mut self.links, chunk);
        self.ghosts.iter_mut().for_each(|ghosts| ghosts.remove(key));
    }

    pub(super) fn on_remove(&mut self, chunk: ChunkId) {
        self.lists[self.list(chunk)].remove(&mut self.links, chunk);
    }

    pub(super) fn touch(&mut self, chunks: &Chunks, keys: &[CacheKey]) {
        for key in keys.iter().rev() {
            match chunks.find(key) {
                None => self.adapt(key),
                Some(chunk) if chunks.is_ready(chunk) => self.move_to(chunk, T2),
                Some(chunk) => self.move_to(chunk, self.list(chunk)),
            }
        }
    }

    pub(super) fn on_request_finished<'a>(
        &mut self,
        chunks: &Chunks,
        keys: impl Iterator<Item = &'a Seen>,
    ) {
        let mut cursor = Cursor::backwards();
        for seen in keys {
            let Some(chunk) = chunks.find_next(&seen.key(), &mut cursor) else { continue };
            if seen.is_reused() {
                self.move_to(chunk, T2);
            } else if seen.is_inserted() {
                self.move_to(chunk, self.list(chunk));
            }
        }
    }

    pub(super) fn evict(&mut self, chunks: &mut Chunks, n: usize) -> Vec<CacheKey> {
        let victims = self.victims(chunks, n);
        let evict = |&chunk: &ChunkId| {
            let (key, list) = (chunks.key(chunk), self.list(chunk));
            self.lists[list].remove(&mut self.links, chunk);
            self.ghosts[list].push(key);
            chunks.remove(chunk);
            key
        };
        let evicted = victims.iter().map(evict).collect();
        for ghosts in &mut self.ghosts {
            (self.capacity..ghosts.len()).for_each(|_| ghosts.pop_first());
        }
        evicted
    }

    /// Returns up to `n` chunks in the order of eviction. A walk along a list never goes back, also
    /// after it was left for the other list.
    fn victims(&self, chunks: &Chunks, n: usize) -> Vec<ChunkId> {
        let mut t1_len = self.lists[T1].len();
        let mut next = [self.lists[T1].first(), self.lists[T2].first()];
        let mut step = |list: usize| {
            while next[list] != NONE {
                let chunk = next[list];
                next[list] = self.links.next(chunk);
                if chunks.is_evictable(chunk) && !chunks.is_offered(chunk) {
                    return Some((chunk, list));
                }
            }
            None
        };
        let mut victims = Vec::with_capacity(n);
        while victims.len() < n {
            let order = if t1_len >= self.target as usize { [T1, T2] } else { [T2, T1] };
            let Some((chunk, list)) = order.into_iter().find_map(&mut step) else { break };
            t1_len -= usize::from(list == T1);
            victims.push(chunk);
        }
        victims
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.capacity);
    }

    pub(super) fn lists(&self, chunks: &Chunks) -> ([Vec<CacheKey>; 4], f64) {
        let keys = |list: usize| {
            self.lists[list].iter(&self.links).map(|chunk| chunks.key(chunk)).collect()
        };
        let ghosts = |list: usize| self.ghosts[list].iter().map(|(key, _)| key).collect();
        ([keys(T1), keys(T2), ghosts(T1), ghosts(T2)], self.target)
    }

    fn list(&self, chunk: ChunkId) -> usize {
        usize::from(self.list_of[chunk as usize])
    }

    /// Moves a chunk to the end of a list.
    fn move_to(&mut self, chunk: ChunkId, list: usize) {
        self.lists[self.list(chunk)].remove(&mut self.links, chunk);
        self.lists[list].push(&mut self.links, chunk);
        self.list_of[chunk as usize] = list as u8;
    }
}
