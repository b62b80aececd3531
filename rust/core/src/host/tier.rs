//! The tier: look-ups, loads, ends of requests, resets.

use std::sync::atomic::{AtomicU64, Ordering};

use super::chunks::{ChunkId, Chunks, Cursor, Transfers};
use super::event::{HostEvent, HostEventKind};
use super::key::{Position, PositionedKey};
use super::policy::{HostPolicy, LruRank, PolicyState};
use super::release::VllmVersion;
use super::request::HostRequest;
use super::store_tracker::StoreTracker;
use crate::block::CacheKey;
use crate::error::{Error, Result};

/// The settings of a tier.
#[derive(Clone, Debug)]
pub struct HostTierConfig {
    /// Number of chunks.
    pub num_chunks: usize,
    /// The order of eviction.
    pub policy: HostPolicy,
    /// The release whose decisions are made.
    pub release: VllmVersion,
    /// Offers of a key before it is stored. Below 2, offers are not counted.
    pub store_threshold: u32,
    /// The most keys whose offers are counted.
    pub max_tracker_size: usize,
    /// Whether events are kept.
    pub enable_events: bool,
}

impl HostTierConfig {
    /// Settings of a tier that stores every key at its first offer.
    pub fn new(num_chunks: usize, policy: HostPolicy) -> Self {
        Self {
            num_chunks,
            policy,
            release: VllmVersion::default(),
            store_threshold: 1,
            max_tracker_size: 64_000,
            enable_events: false,
        }
    }
}

/// The state of a chunk that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkState {
    /// The chunk is being stored.
    Pending,
    /// The chunk can be loaded.
    Ready {
        /// Loads that use it now. It can be evicted if there are none.
        num_loads: u32,
    },
}

/// Chunks of KV in host memory.
#[derive(Debug)]
pub struct HostTier {
    pub(super) chunks: Chunks,
    pub(super) policy: PolicyState,
    pub(super) tracker: Option<StoreTracker>,
    pub(super) num_skipped: usize,
    pub(super) store_sizes: Vec<usize>,
    release: VllmVersion,
    events: Option<Vec<HostEvent>>,
    id: u64,
    num_resets: u64,
}

impl HostTier {
    /// Returns a tier without keys, or an error if there are too many chunks.
    pub fn new(config: &HostTierConfig) -> Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let threshold = config.store_threshold;
        Ok(Self {
            chunks: Chunks::new(config.num_chunks)?,
            policy: PolicyState::new(config.policy, config.release, config.num_chunks),
            tracker: (threshold >= 2)
                .then(|| StoreTracker::new(threshold, config.max_tracker_size)),
            num_skipped: 0,
            store_sizes: Vec::new(),
            release: config.release,
            events: config.enable_events.then(Vec::new),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            num_resets: 0,
        })
    }

    /// Returns an empty tier with another policy and the same other settings. Offers are not
    /// counted.
    pub fn with_policy(&self, policy: HostPolicy) -> Result<Self> {
        Self::new(&HostTierConfig {
            release: self.release,
            enable_events: self.events.is_some(),
            ..HostTierConfig::new(self.num_chunks(), policy)
        })
    }

    /// Returns the policy.
    pub fn policy(&self) -> HostPolicy {
        self.policy.policy()
    }

    /// Returns the state of the chunk of a key, if there is one.
    pub fn lookup(&self, key: &CacheKey) -> Option<ChunkState> {
        self.chunks.find(key).map(|chunk| match self.chunks.references(chunk) {
            None => ChunkState::Pending,
            Some(num_loads) => ChunkState::Ready { num_loads },
        })
    }

    /// Adds a load to the chunks of keys and returns the chunks. An error if a key has no ready
    /// chunk, or if the request ended and did not see the key before.
    pub fn prepare_load(
        &mut self,
        request: &mut HostRequest,
        keys: impl Iterator<Item = PositionedKey> + Clone,
    ) -> Result<Vec<ChunkId>> {
        self.claim_for_this_tier(request);
        let chunks = self.prepare_read(keys.clone().map(|(key, _)| key))?;
        if let Err(error) = check_not_ended(request, keys.clone().map(|(key, _)| key)) {
            self.release_all(chunks);
            return Err(error);
        }
        request.reserve(chunks.len());
        let mut access = FirstAccess::of_up_to(chunks.len());
        let mut next = chunks.iter().copied();
        keys.for_each(|(key, position)| {
            let (slot, is_new) = request.note_seen(key, position);
            request.at(slot).note_reuse();
            access.note(is_new, next.next(), position);
        });
        self.record_access(request, &access);
        Ok(chunks)
    }

    /// Adds a load to the chunks of keys for a read that is no request's use of them. Returns the
    /// chunks, or an error if a key has no ready chunk.
    pub fn prepare_read(&mut self, keys: impl Iterator<Item = CacheKey>) -> Result<Vec<ChunkId>> {
        let (chunks, missing) = self.change_each(keys, |all, chunk| {
            let is_ready = all.is_ready(chunk);
            is_ready.then(|| all.acquire(chunk));
            is_ready
        });
        let Some(key) = missing else { return Ok(chunks) };
        self.release_all(chunks);
        let reason = format!("{key:?} has no ready chunk; load only keys that are hits");
        Err(Error::Request(reason))
    }

    /// Takes back loads that were just added.
    fn release_all(&mut self, chunks: Vec<ChunkId>) {
        chunks.into_iter().for_each(|chunk| _ = self.chunks.release(chunk));
    }

    /// Removes a load from the chunks of keys. An error if a chunk has fewer loads.
    pub fn complete_load(&mut self, keys: impl Iterator<Item = CacheKey>) -> Result<()> {
        let num_loads = self.release_each(keys, Chunks::end_load)?;
        self.chunks.count_loads(num_loads);
        Ok(())
    }

    /// Does what [`Self::complete_load`] does, for reads, which [`Self::transfers`] does not count.
    pub fn complete_read(&mut self, keys: impl Iterator<Item = CacheKey>) -> Result<()> {
        let release = |all: &mut Chunks, chunk| all.release(chunk).is_some();
        self.release_each(keys, release).map(drop)
    }

    /// Ends a load of each key with `end`. Returns how many loads ended.
    fn release_each(
        &mut self,
        keys: impl Iterator<Item = CacheKey>,
        end: impl Fn(&mut Chunks, ChunkId) -> bool,
    ) -> Result<usize> {
        let (chunks, missing) = self.change_each(keys, end);
        if let Some(key) = missing {
            chunks.into_iter().for_each(|chunk| self.chunks.acquire(chunk));
            return Err(Error::Request(format!(
                "{key:?} has no load to complete; complete each load once"
            )));
        }
        self.policy.on_released(&self.chunks, &chunks);
        Ok(chunks.len())
    }

    /// Changes the chunks of keys until a key has none, or one that `change` refuses. Returns the
    /// changed chunks, and that key.
    fn change_each(
        &mut self,
        keys: impl Iterator<Item = CacheKey>,
        change: impl Fn(&mut Chunks, ChunkId) -> bool,
    ) -> (Vec<ChunkId>, Option<CacheKey>) {
        let mut changed = Vec::with_capacity(keys.size_hint().0);
        let (mut cursor, mut missing) = (Cursor::forwards(), None);
        // Keys of several groups are faster in `for_each` than in a loop that can end early.
        keys.for_each(|key| {
            if missing.is_some() {
                return;
            }
            match self.chunks.find_next(&key, &mut cursor) {
                Some(chunk) if change(&mut self.chunks, chunk) => changed.push(chunk),
                _ => missing = Some(key),
            }
        });
        (changed, missing)
    }

    /// Counts a use of each key. The first key counts as the one used last.
    pub fn touch(&mut self, keys: &[CacheKey]) {
        self.policy.touch(&self.chunks, keys);
    }

    /// Ends a request and counts the keys that it saw as used now, from the end of its prompt on.
    /// Positions of keys that it did not see are passed over.
    ///
    /// Nothing happens if the request ended before, or has seen nothing since the last reset.
    pub fn finish_request(
        &mut self,
        request: &mut HostRequest,
        positions: impl IntoIterator<Item = (CacheKey, u32)>,
    ) {
        if self.is_from_this_tier(request) && !request.is_finished {
            self.policy.on_request_finished(&self.chunks, request.finish(positions));
        }
    }

    /// Makes a request one of this tier. Drops the keys that it saw in another tier or before a reset.
    pub fn claim_for_this_tier(&mut self, request: &mut HostRequest) {
        if !self.is_from_this_tier(request) {
            *request = HostRequest::new(self.owner());
        }
    }

    /// Frees all chunks, also those that are stored or loaded now. The counts of offers stay.
    pub fn reset(&mut self) {
        self.chunks.clear();
        self.policy.clear();
        self.num_resets += 1;
    }

    /// Returns the events since the last call. Keys of failed stores that are there again are left
    /// out.
    pub fn take_events(&mut self) -> Vec<HostEvent> {
        let mut events = self.events.as_mut().map(std::mem::take).unwrap_or_default();
        for event in events.iter_mut().filter(|event| event.kind == HostEventKind::Failed) {
            event.keys.retain(|key| self.chunks.find(key).is_none());
        }
        events.retain(|event| !event.keys.is_empty());
        events
    }

    /// Returns the events since the last [`Self::take_events`], all keys of failed stores among
    /// them.
    pub fn recorded_events(&self) -> &[HostEvent] {
        self.events.as_deref().unwrap_or_default()
    }

    /// Returns the number of chunks.
    pub fn num_chunks(&self) -> usize {
        self.chunks.capacity()
    }

    /// Returns the number of chunks without a key.
    pub fn num_free(&self) -> usize {
        self.chunks.num_free()
    }

    /// Returns how many ids of chunks were given out since the last reset, free ones again among
    /// them.
    pub fn num_allocated(&self) -> usize {
        self.chunks.num_allocated()
    }

    /// Returns the number of chunks that can be evicted.
    pub fn num_evictable(&self) -> usize {
        self.chunks.num_evictable()
    }

    /// Returns the number of chunks that are being stored.
    pub fn num_pending(&self) -> usize {
        self.chunks.num_pending()
    }

    /// Returns how many stores of a chunk have begun. A reset counts for none.
    pub fn num_stores(&self) -> u64 {
        self.chunks.num_inserted()
    }

    /// Returns how many of them have ended.
    pub fn num_stores_ended(&self) -> u64 {
        self.chunks.num_inserted() - self.chunks.num_pending() as u64
    }

    /// Returns how many chunks were copied to and from the tier since it was created.
    pub fn transfers(&self) -> Transfers {
        self.chunks.transfers()
    }

    /// Returns how many offered keys were not stored since the last call, as they were offered too
    /// seldom.
    pub fn take_num_skipped(&mut self) -> usize {
        std::mem::take(&mut self.num_skipped)
    }

    /// Returns how many chunks each store asked for since the last call, also if there was no room.
    pub fn take_store_sizes(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.store_sizes)
    }

    /// Returns all keys with their chunks, in no order.
    pub fn keys(&self) -> impl Iterator<Item = (CacheKey, ChunkId)> + '_ {
        self.chunks.iter()
    }

    /// Returns the evictable keys under LRU, the first to go first.
    pub fn lru_order(&self) -> Option<Vec<CacheKey>> {
        self.policy.lru_order(&self.chunks)
    }

    /// Returns what orders each key under LRU, in no order, and the last rank that was given.
    pub fn lru_ranks(&self) -> Option<(Vec<(CacheKey, LruRank)>, u64)> {
        self.policy.lru_ranks(&self.chunks)
    }

    /// Returns the chunks without a key that had one; the last one is given first.
    pub fn freed(&self) -> &[ChunkId] {
        self.chunks.freed()
    }

    /// Returns whether a request belongs to this tier since the tier's last reset.
    pub fn is_from_this_tier(&self, request: &HostRequest) -> bool {
        request.owner == Some(self.owner())
    }

    /// Returns T1, T2 and their ghosts B1, B2 under ARC, the oldest first, and the target of T1.
    pub fn arc_lists(&self) -> Option<([Vec<CacheKey>; 4], f64)> {
        self.policy.arc_lists(&self.chunks)
    }

    /// Returns the keys whose blocks the pool has too, and the others, each with the last used one
    /// last, under `adaptive`.
    pub fn adaptive_lists(&self) -> Option<[Vec<CacheKey>; 2]> {
        self.policy.adaptive_lists(&self.chunks)
    }

    /// Returns the keys whose offers are counted with their counts, the oldest first.
    pub fn tracked_offers(&self) -> Vec<(CacheKey, u32)> {
        self.tracker.iter().flat_map(StoreTracker::iter).collect()
    }

    pub(super) fn record_event(&mut self, kind: HostEventKind, keys: &[CacheKey]) {
        let is_told = kind != HostEventKind::Failed || self.release != VllmVersion::V0_32;
        if let Some(events) = self.events.as_mut().filter(|_| is_told && !keys.is_empty()) {
            events.push(HostEvent { kind, keys: keys.to_vec() });
        }
    }

    /// Tells the policy of the keys that a request saw for the first time, if there are any.
    pub(super) fn record_access(&mut self, request: &mut HostRequest, access: &FirstAccess) {
        if access.is_any_new {
            self.policy.on_request_access(&self.chunks, request, &access.chunks);
        }
    }

    pub(super) fn owner(&self) -> (u64, u64) {
        (self.id, self.num_resets)
    }
}

/// The keys of a call that its request had not seen before.
#[derive(Default)]
pub(super) struct FirstAccess {
    is_any_new: bool,
    /// The chunks and positions of the keys that have both.
    chunks: Vec<(ChunkId, u32)>,
}

impl FirstAccess {
    fn of_up_to(num_chunks: usize) -> Self {
        Self { chunks: Vec::with_capacity(num_chunks), ..Self::default() }
    }

    pub(super) fn note(&mut self, is_new: bool, chunk: Option<ChunkId>, position: Position) {
        self.is_any_new |= is_new;
        self.chunks.extend(chunk.zip(position).filter(|_| is_new));
    }
}

/// Refuses keys that a request sees for the first time after its end.
pub(super) fn check_not_ended(
    request: &mut HostRequest,
    mut keys: impl Iterator<Item = CacheKey>,
) -> Result<()> {
    if !request.is_finished {
        return Ok(());
    }
    request.index_seen_keys();
    match keys.all(|key| request.has_seen(&key)) {
        true => Ok(()),
        false => Err(Error::Request("the request has ended and cannot use more keys".into())),
    }
}
