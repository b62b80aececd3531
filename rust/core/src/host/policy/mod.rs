//! The order in which chunks are evicted.

mod adaptive;
mod arc;
mod lru;

mod reservation;

use super::chunks::{ChunkId, Chunks};
use super::key::Position;
use super::release::VllmVersion;
use super::request::{HostRequest, Seen};
use crate::block::CacheKey;
use adaptive::Adaptive;
use arc::Arc;
use lru::Lru;
pub use lru::LruRank;

/// The policies of the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPolicy {
    /// The least recently used chunk goes first.
    Lru,
    /// Adaptive replacement: chunks used once and chunks used again share the tier as ghosts of
    /// evicted ones advise.
    Arc,
    /// Chunks whose blocks the pool has too go first. vLLM does not have this policy. See
    /// [`crate::joint`].
    Adaptive,
}

impl HostPolicy {
    /// All policies with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("lru", Self::Lru), ("arc", Self::Arc), ("adaptive", Self::Adaptive)];
    /// The policies that vLLM has, with its names.
    pub const OF_VLLM: [(&'static str, Self); 2] = [Self::ALL[0], Self::ALL[1]];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        let [lru, arc, adaptive] = Self::ALL;
        match self {
            Self::Lru => lru.0,
            Self::Arc => arc.0,
            Self::Adaptive => adaptive.0,
        }
    }

    /// Returns the policy of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, policy)| policy)
    }
}

/// The state of a policy. The chunks have already changed when a method is called.
#[derive(Debug)]
pub(super) enum PolicyState {
    Lru(Lru),
    Arc(Arc),
    Adaptive(Adaptive),
}

impl PolicyState {
    pub(super) fn new(policy: HostPolicy, release: VllmVersion, capacity: usize) -> Self {
        match policy {
            HostPolicy::Lru => Self::Lru(Lru::new(release, capacity)),
            HostPolicy::Arc => Self::Arc(Arc::new(capacity)),
            HostPolicy::Adaptive => Self::Adaptive(Adaptive::new(capacity)),
        }
    }

    /// Returns which policy it is.
    pub(super) fn policy(&self) -> HostPolicy {
        match self {
            Self::Lru(_) => HostPolicy::Lru,
            Self::Arc(_) => HostPolicy::Arc,
            Self::Adaptive(_) => HostPolicy::Adaptive,
        }
    }

    /// A request is about to store keys for the first time.
    pub(super) fn on_store_miss(&mut self, keys: &[CacheKey]) {
        if let Self::Arc(arc) = self {
            keys.iter().rev().for_each(|key| arc.adapt(key));
        }
    }

    /// A request saw keys for the first time. `seen` has the keys with a chunk and a position.
    pub(super) fn on_request_access(
        &mut self,
        chunks: &Chunks,
        request: &mut HostRequest,
        seen: &[(ChunkId, u32)],
    ) {
        if let Self::Lru(lru) = self {
            lru.on_request_access(chunks, request, seen);
        }
    }

    pub(super) fn on_insert(
        &mut self,
        chunks: &Chunks,
        request: &mut HostRequest,
        chunk: ChunkId,
        position: Position,
    ) {
        match self {
            Self::Lru(lru) => lru.on_insert(chunks, request, chunk, position),
            Self::Arc(arc) => arc.on_insert(&chunks.key(chunk), chunk),
            Self::Adaptive(adaptive) => adaptive.on_insert(chunks, chunk),
        }
    }

    /// A pending chunk goes because its store failed.
    pub(super) fn on_remove(&mut self, chunk: ChunkId) {
        match self {
            Self::Lru(lru) => lru.on_remove(chunk),
            Self::Arc(arc) => arc.on_remove(chunk),
            Self::Adaptive(adaptive) => adaptive.on_remove(chunk),
        }
    }

    pub(super) fn on_evictable(&mut self, chunks: &Chunks, chunk: ChunkId) {
        if let Self::Lru(lru) = self {
            lru.on_evictable(chunks, chunk);
        }
    }

    /// Loads of ready chunks ended.
    pub(super) fn on_released(&mut self, chunks: &Chunks, released: &[ChunkId]) {
        match self {
            Self::Lru(lru) => lru.on_released(chunks, released),
            Self::Arc(_) => {}
            Self::Adaptive(adaptive) => adaptive.on_released(chunks, released),
        }
    }

    /// Notes whether the pool has the block of a chunk and will keep it, under `adaptive`.
    pub(super) fn note_waited(&mut self, num_stores: usize, most: usize) {
        if let Self::Adaptive(adaptive) = self {
            adaptive.note_waited(num_stores, most);
        }
    }

    /// Returns whether a step waits for stores, under `adaptive`.
    pub(super) fn stores_pay(&mut self, capacity: usize) -> bool {
        match self {
            Self::Adaptive(adaptive) => adaptive.stores_pay(capacity),
            _ => true,
        }
    }

    pub(super) fn note_lost(&mut self, num_blocks: usize) {
        if let Self::Adaptive(adaptive) = self {
            adaptive.note_lost(num_blocks);
        }
    }

    pub(super) fn set_copy(&mut self, chunk: ChunkId, is_copy: bool) {
        if let Self::Adaptive(adaptive) = self {
            adaptive.set_copy(chunk, is_copy);
        }
    }

    pub(super) fn touch(&mut self, chunks: &Chunks, keys: &[CacheKey]) {
        match self {
            Self::Lru(lru) => lru.touch(chunks, keys.iter().rev().copied()),
            Self::Arc(arc) => arc.touch(chunks, keys),
            Self::Adaptive(_) => {}
        }
    }

    /// A request ended that saw these keys, from the end of the prompt on.
    pub(super) fn on_request_finished<'a>(
        &mut self,
        chunks: &Chunks,
        keys: impl Iterator<Item = &'a Seen>,
    ) {
        match self {
            Self::Lru(lru) => lru.touch(chunks, keys.map(Seen::key)),
            Self::Arc(arc) => arc.on_request_finished(chunks, keys),
            Self::Adaptive(_) => {}
        }
    }

    /// Evicts `n` chunks that are not offered. There must be as many.
    pub(super) fn evict(&mut self, chunks: &mut Chunks, n: usize) -> Vec<CacheKey> {
        match self {
            Self::Lru(lru) => lru.evict(chunks, n),
            Self::Arc(arc) => arc.evict(chunks, n),
            Self::Adaptive(adaptive) => adaptive.evict(chunks, n),
        }
    }

    /// Evicts up to `n` chunks whose blocks the pool has too; none under a policy of vLLM.
    pub(super) fn evict_copies(
        &mut self,
        chunks: &mut Chunks,
        n: usize,
        is_in_pool: impl Fn(&CacheKey) -> bool,
    ) -> Vec<CacheKey> {
        match self {
            Self::Lru(_) | Self::Arc(_) => Vec::new(),
            Self::Adaptive(adaptive) => adaptive.evict_copies(chunks, n, is_in_pool),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Lru(lru) => lru.clear(),
            Self::Arc(arc) => arc.clear(),
            Self::Adaptive(adaptive) => adaptive.clear(),
        }
    }

    /// Returns the evictable keys, the first to go first, under LRU.
    pub(super) fn lru_order(&self, chunks: &Chunks) -> Option<Vec<CacheKey>> {
        match self {
            Self::Lru(lru) => Some(lru.order(chunks)),
            Self::Arc(_) | Self::Adaptive(_) => None,
        }
    }

    /// Returns what orders each key and the last rank, under LRU.
    pub(super) fn lru_ranks(&self, chunks: &Chunks) -> Option<(Vec<(CacheKey, LruRank)>, u64)> {
        match self {
            Self::Lru(lru) => Some(lru.ranks(chunks)),
            Self::Arc(_) | Self::Adaptive(_) => None,
        }
    }

    /// Returns T1, T2, B1 and B2, the oldest first, and the target of T1, under ARC.
    pub(super) fn arc_lists(&self, chunks: &Chunks) -> Option<([Vec<CacheKey>; 4], f64)> {
        match self {
            Self::Lru(_) | Self::Adaptive(_) => None,
            Self::Arc(arc) => Some(arc.lists(chunks)),
        }
    }

    /// Returns the keys whose blocks the pool has too, and the others, each with the last used one
    /// last, under `adaptive`.
    pub(super) fn adaptive_lists(&self, chunks: &Chunks) -> Option<[Vec<CacheKey>; 2]> {
        match self {
            Self::Lru(_) | Self::Arc(_) => None,
            Self::Adaptive(adaptive) => Some(adaptive.lists(chunks)),
        }
    }
}
