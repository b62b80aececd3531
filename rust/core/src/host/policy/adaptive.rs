//! `adaptive`: a chunk whose block the pool has too is evicted first, the one used last before the
//! others, unless so few of them are left that they are kept. Of the other chunks, the simulated
//! pool's order decides. Where it says nothing, the one whose block left the pool the longest time ago
//! goes first.

use super::reservation::reserved_list;
use crate::block::{CacheKey, GroupId};
use crate::host::chunks::{ChunkId, Chunks};
use crate::host::links::{Links, NONE, Order};

/// How many copies fewer are kept for each block that was lost. To compute a block takes about as long
/// as so many stores.
const COPIES_PER_LOST: usize = 16;

/// A step waits for stores only while one of the groups has at least one load for so many stores. All
/// requests of a step wait, and a load helps one of them. Groups of windows or states have few loads,
/// because a prompt needs only its last ones. With 8, generated traffic lost more hits.
const STORES_PER_LOAD: usize = 12;

/// The chunks of a group that were stored and loaded.
#[derive(Clone, Copy, Debug, Default)]
struct GroupTransfers {
    num_stored: usize,
    num_loaded: usize,
}

impl GroupTransfers {
    fn pay(self) -> bool {
        self.num_stored > 0 && self.num_loaded.saturating_mul(STORES_PER_LOAD) >= self.num_stored
    }
}

/// The chunks with a key, in the order of eviction.
#[derive(Debug, Default)]
pub(crate) struct Adaptive {
    /// The chunks whose blocks left the pool, in that order, and copies: the chunks whose blocks the
    /// pool has too, the last used one last.
    lists: [Order; 2],
    links: Links,
    /// Whether each chunk is one of the copies.
    is_copy: Vec<bool>,
    /// How many copies are kept. A block without a copy is stored before a load takes it from the pool,
    /// and the load waits. A block that was lost for copies has to be computed.
    num_kept: usize,
    /// The transfers of each group since stores were last compared with loads.
    transfers: Vec<GroupTransfers>,
    /// Whether too few chunks had been loaded then.
    is_waste: bool,
}

impl Adaptive {
    pub(super) fn new(capacity: usize) -> Self {
        let (links, is_copy) = (Links::new(reserved_list(capacity)), reserved_list(capacity));
        Self { links, is_copy, ..Self::default() }
    }

    pub(super) fn on_insert(&mut self, chunks: &Chunks, chunk: ChunkId) {
        self.transfers_of(chunks.key(chunk).group).num_stored += 1;
        if chunk as usize >= self.is_copy.len() {
            self.is_copy.resize(chunk as usize + 1, false);
        }
        self.list(chunk, false);
    }

    #[inline]
    fn transfers_of(&mut self, group: GroupId) -> &mut GroupTransfers {
        let group = usize::from(group);
        if group >= self.transfers.len() {
            self.transfers.resize(group + 1, GroupTransfers::default());
        }
        &mut self.transfers[group]
    }

    fn list(&mut self, chunk: ChunkId, is_copy: bool) {
        self.is_copy[chunk as usize] = is_copy;
        self.lists[usize::from(is_copy)].push(&mut self.links, chunk);
    }

    pub(super) fn on_remove(&mut self, chunk: ChunkId) {
        let is_copy = self.is_copy[chunk as usize];
        self.lists[usize::from(is_copy)].remove(&mut self.links, chunk);
    }

    /// Loads of chunks ended, so the pool has their blocks.
    #[cold]
    #[inline(never)]
    pub(super) fn on_released(&mut self, chunks: &Chunks, released: &[ChunkId]) {
        released.iter().for_each(|&chunk| self.set_copy(chunk, true));
        let group = |chunk: &ChunkId| chunks.key(*chunk).group;
        for run in released.chunk_by(|one, next| group(one) == group(next)) {
            self.transfers_of(group(&run[0])).num_loaded += run.len();
        }
    }

    /// Notes whether the pool has the block of a chunk, and will keep it.
    pub(super) fn set_copy(&mut self, chunk: ChunkId, is_copy: bool) {
        self.on_remove(chunk);
        self.list(chunk, is_copy);
    }

    /// Evicts up to `n` copies, the last used one first, until as few are left as are kept. A copy whose
    /// block is not in the pool any more joins the others.
    pub(super) fn evict_copies(
        &mut self,
        chunks: &mut Chunks,
        n: usize,
        is_in_pool: impl Fn(&CacheKey) -> bool,
    ) -> Vec<CacheKey> {
        let [_, copies] = &self.lists;
        let (mut evicted, mut next) = (Vec::with_capacity(n), copies.last());
        while evicted.len() < n && next != NONE && self.lists[1].len() > self.num_kept {
            let chunk = next;
            next = self.links.before(chunk);
            if !is_in_pool(&chunks.key(chunk)) {
                self.set_copy(chunk, false);
            } else if is_victim(chunks, chunk) {
                evicted.push(self.evict_one(chunks, chunk));
            }
        }
        evicted
    }

    /// Notes that loads wait for so many stores. As many copies more are kept, `most` in total.
    pub(super) fn note_waited(&mut self, num_stores: usize, most: usize) {
        self.num_kept = (self.num_kept + num_stores).min(most);
    }

    /// Notes that blocks would have been hit which neither memory has any more.
    pub(super) fn note_lost(&mut self, num_blocks: usize) {
        self.num_kept = self.num_kept.saturating_sub(COPIES_PER_LOST.saturating_mul(num_blocks));
    }

    /// Returns whether a step waits for stores. Stores are compared with loads each time as many chunks
    /// were stored as the tier has. A step waits before the first comparison.
    pub(super) fn stores_pay(&mut self, capacity: usize) -> bool {
        let num_stored: usize = self.transfers.iter().map(|it| it.num_stored).sum();
        if num_stored > 0 && num_stored >= capacity {
            self.is_waste = !self.transfers.iter().any(|it| it.pay());
            self.transfers.clear();
        }
        !self.is_waste
    }

    /// Evicts up to `n` chunks that are not offered: all copies, then the others.
    pub(super) fn evict(&mut self, chunks: &mut Chunks, n: usize) -> Vec<CacheKey> {
        let kept = std::mem::take(&mut self.num_kept);
        let mut evicted = self.evict_copies(chunks, n, |_| true);
        self.num_kept = kept;
        let [others, _] = &self.lists;
        let mut next = others.first();
        while evicted.len() < n && next != NONE {
            let chunk = next;
            next = self.links.next(chunk);
            if is_victim(chunks, chunk) {
                evicted.push(self.evict_one(chunks, chunk));
            }
        }
        evicted
    }

    fn evict_one(&mut self, chunks: &mut Chunks, chunk: ChunkId) -> CacheKey {
        let key = chunks.key(chunk);
        self.on_remove(chunk);
        chunks.remove(chunk);
        key
    }

    pub(super) fn clear(&mut self) {
        *self = Self { is_waste: self.is_waste, ..Self::new(self.is_copy.capacity()) };
    }

    /// Returns the keys of copies and of the others, each with the last used one last.
    pub(super) fn lists(&self, chunks: &Chunks) -> [Vec<CacheKey>; 2] {
        let keys = |list: &Order| list.iter(&self.links).map(|chunk| chunks.key(chunk)).collect();
        let [others, copies] = &self.lists;
        [keys(copies), keys(others)]
    }
}

fn is_victim(chunks: &Chunks, chunk: ChunkId) -> bool {
    chunks.is_evictable(chunk) && !chunks.is_offered(chunk)
}
