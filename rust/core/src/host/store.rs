//! Stores: which offered keys get a chunk, and what they push out.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::chunks::{ChunkId, Cursor};
use super::event::HostEventKind;
use super::key::{Position, PositionedKey};
use super::request::HostRequest;
use super::tier::{FirstAccess, HostTier, check_not_ended};
use crate::block::CacheKey;
use crate::error::{Error, Result};

/// The keys to store, and the keys that are evicted for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorePlan {
    /// The positions in the offer of the keys to store.
    pub stored: Vec<usize>,
    /// The chunk of each of them.
    pub chunks: Vec<ChunkId>,
    /// The keys that were evicted for them, in order.
    pub evicted: Vec<CacheKey>,
}

/// A key of an offer that is to be stored, or has a ready chunk.
struct Used {
    /// Its position in the offer.
    at: u32,
    chunk: Option<ChunkId>,
}

/// An offer, sorted by what the tier has of it.
#[derive(Default)]
struct Offer {
    used: Vec<Used>,
    num_absent: usize,
    /// Chunks of the offer, ready or pending.
    chunks: Vec<ChunkId>,
}

/// A key to store, and its position in the offer and in its request.
struct Absent {
    key: CacheKey,
    at: usize,
    position: Position,
    slot: u32,
}

impl HostTier {
    /// Gives absent keys of an offer a pending chunk each. Returns `None` if there is no room. An
    /// error if a key is offered twice, or if the request ended and did not see a key before.
    ///
    /// The use of the offered keys is counted in any case.
    pub fn prepare_store(
        &mut self,
        request: &mut HostRequest,
        keys: impl Iterator<Item = PositionedKey> + Clone,
    ) -> Result<Option<StorePlan>> {
        check_distinct(keys.clone().map(|(key, _)| key))?;
        self.prepare_store_of_distinct(request, keys)
    }

    /// Does what [`Self::prepare_store`] does, for keys that the caller knows to be distinct. Equal
    /// keys get a chunk each, and all but one of these chunks are lost until a reset.
    pub fn prepare_store_of_distinct(
        &mut self,
        request: &mut HostRequest,
        keys: impl Iterator<Item = PositionedKey> + Clone,
    ) -> Result<Option<StorePlan>> {
        self.claim_for_this_tier(request);
        let only_keys = keys.clone().map(|(key, _)| key);
        check_not_ended(request, only_keys.clone().filter(|key| self.will_use(key)))?;
        if let Some(tracker) = &mut self.tracker {
            tracker.record(&only_keys.collect::<Vec<_>>());
        }
        let offer = self.sort_offer(keys.clone().map(|(key, _)| key));
        let absent = self.note_use(request, &offer, keys);
        if absent.is_empty() {
            return Ok(Some(StorePlan::default()));
        }
        self.store_sizes.push(absent.len());
        let Some(evicted) = self.make_room(&offer) else { return Ok(None) };
        self.record_event(HostEventKind::Removed, &evicted);
        let insert = |absent: &Absent| {
            let chunk = self.chunks.insert(absent.key);
            self.policy.on_insert(&self.chunks, request, chunk, absent.position);
            request.at(absent.slot).note_insertion();
            chunk
        };
        let chunks = absent.iter().map(insert).collect();
        let stored = absent.iter().map(|absent| absent.at).collect();
        Ok(Some(StorePlan { stored, chunks, evicted }))
    }

    /// Makes the pending chunks of keys ready, or frees them if the store failed. Keys that are
    /// gone or ready are passed over.
    pub fn complete_store(&mut self, keys: impl Iterator<Item = CacheKey>, is_success: bool) {
        let mut done = Vec::new();
        let mut cursor = Cursor::forwards();
        for key in keys {
            let chunk = self.chunks.find_next(&key, &mut cursor);
            let Some(chunk) = chunk.filter(|&chunk| !self.chunks.is_ready(chunk)) else { continue };
            if is_success {
                self.chunks.make_ready(chunk);
                self.policy.on_evictable(&self.chunks, chunk);
            } else {
                self.policy.on_remove(chunk);
                self.chunks.remove(chunk);
            }
            done.push(key);
        }
        let kind = if is_success { HostEventKind::Stored } else { HostEventKind::Failed };
        self.record_event(kind, &done);
    }

    /// Whether an offer of a key stores it or uses its chunk.
    fn will_use(&self, key: &CacheKey) -> bool {
        match self.chunks.find(key) {
            Some(chunk) => self.chunks.is_ready(chunk),
            None => self.tracker.as_ref().is_none_or(|tracker| tracker.will_admit(key)),
        }
    }

    fn sort_offer(&mut self, keys: impl Iterator<Item = CacheKey>) -> Offer {
        let mut offer = Offer::default();
        let mut cursor = Cursor::forwards();
        for (at, key) in (0..).zip(keys) {
            let chunk = self.chunks.find_next(&key, &mut cursor);
            match chunk {
                None if self.tracker.as_ref().is_none_or(|tracker| tracker.admits(&key)) => {
                    offer.num_absent += 1;
                }
                None => {
                    self.num_skipped += 1;
                    continue;
                }
                Some(chunk) => {
                    offer.chunks.push(chunk);
                    if !self.chunks.is_ready(chunk) {
                        continue;
                    }
                }
            }
            offer.used.push(Used { at, chunk });
        }
        offer
    }

    /// Notes what a request stores and uses, before it is known whether there is room. Returns what
    /// it stores.
    fn note_use(
        &mut self,
        request: &mut HostRequest,
        offer: &Offer,
        keys: impl Iterator<Item = PositionedKey>,
    ) -> Vec<Absent> {
        request.reserve(offer.used.len());
        let mut absent = Vec::with_capacity(offer.num_absent);
        let (mut misses, mut first) = (Vec::new(), FirstAccess::default());
        let mut used = offer.used.iter().peekable();
        for (at, (key, position)) in keys.enumerate() {
            let Some(Used { chunk, .. }) = used.next_if(|used| used.at as usize == at) else {
                continue;
            };
            let (slot, is_new) = request.note_seen(key, position);
            first.note(is_new, *chunk, position);
            let seen = request.at(slot);
            if chunk.is_some() {
                seen.note_reuse();
                continue;
            }
            if !seen.note_store_miss() {
                misses.push(key);
            }
            absent.push(Absent { key, at, position, slot });
        }
        self.policy.on_store_miss(&misses);
        self.record_access(request, &first);
        absent
    }

    /// Evicts chunks to make room for an offer, but no chunk of the offer itself. Returns `None`
    /// and evicts nothing if that does not suffice.
    fn make_room(&mut self, offer: &Offer) -> Option<Vec<CacheKey>> {
        let num_missing = offer.num_absent.saturating_sub(self.chunks.num_free());
        if num_missing == 0 {
            return Some(Vec::new());
        }
        let is_evictable = |&&chunk: &&ChunkId| self.chunks.is_evictable(chunk);
        let num_offered = offer.chunks.iter().filter(is_evictable).count();
        if num_missing + num_offered > self.chunks.num_evictable() {
            return None;
        }
        offer.chunks.iter().for_each(|&chunk| self.chunks.set_offered(chunk, true));
        let evicted = self.policy.evict(&mut self.chunks, num_missing);
        offer.chunks.iter().for_each(|&chunk| self.chunks.set_offered(chunk, false));
        Some(evicted)
    }
}

fn check_distinct(mut keys: impl Iterator<Item = CacheKey>) -> Result<()> {
    let mut seen = HashSet::with_capacity_and_hasher(keys.size_hint().0, FixedState::with_seed(0));
    match keys.find(|key| !seen.insert(*key)) {
        Some(key) => Err(Error::Request(format!("{key:?} is offered twice; offer each key once"))),
        None => Ok(()),
    }
}
