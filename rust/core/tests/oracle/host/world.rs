//! Makes the same calls of the tier and of its model.

use std::collections::HashMap;

use kvoxide_core::host::{
    ChunkId, ChunkState, HostPolicy, HostRequest, HostTier, HostTierConfig, Position, PrefixMemo,
};
use kvoxide_core::{BlockHash, CacheKey};

use super::model;

/// The number of requests that run at the same time.
pub const NUM_REQUESTS: usize = 4;

/// The most chunks of a prompt.
const MAX_PROMPT_LEN: usize = 24;

/// A call. Prompts have a key for each chunk and group.
#[derive(Clone, Debug)]
pub enum Step {
    /// Offers keys of a request's prompt, from one chunk on, for the groups in this order.
    Store { request: usize, first: usize, len: usize, groups: Vec<u16> },
    /// Ends a store.
    CompleteStore { at: usize, is_success: bool },
    /// Loads the ready chunks of a part of a prompt.
    Load { request: usize, first: usize, len: usize, group: u16 },
    /// Ends a load.
    CompleteLoad { at: usize },
    /// Reads the ready chunks of a part of a prompt for another tier.
    Read { request: usize, first: usize, len: usize, group: u16 },
    /// Ends a read.
    CompleteRead { at: usize },
    /// Uses a part of a prompt.
    Touch { prompt: u64, first: usize, len: usize },
    /// Looks up a part of a prompt.
    LookUp { request: usize, first: usize, len: usize, group: u16, windows: (usize, usize) },
    /// Ends a request. Another one takes its place.
    Finish { request: usize },
    /// Makes calls for a part of a prompt that the tier must refuse.
    Refused { request: usize, first: usize, len: usize, group: u16 },
    /// Frees all chunks.
    Reset,
}

fn key(prompt: u64, at: usize, group: u16) -> CacheKey {
    // Prompts share their first three chunks. Hashes are not in the order of positions.
    let n = if at < 3 { at as u64 } else { (prompt + 1) * 100 + at as u64 };
    CacheKey { hash: BlockHash([n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n, 0, 0]), group }
}

#[derive(Default)]
struct Running {
    prompt: u64,
    engine: HostRequest,
    model: model::Request,
}

/// A tier and its model.
pub struct World {
    engine: HostTier,
    model: model::Tier,
    requests: Vec<Running>,
    num_prompts: u64,
    stores: Vec<Vec<CacheKey>>,
    loads: Vec<Vec<CacheKey>>,
    reads: Vec<Vec<CacheKey>>,
    /// The memos of look-ups, by the first key.
    memos: HashMap<CacheKey, PrefixMemo>,
    /// Positions that are divisible by this number are unknown.
    unknown: usize,
}

impl World {
    /// Returns a new tier. Positions that are divisible by `unknown` are unknown.
    pub fn new(config: HostTierConfig, unknown: usize) -> Self {
        let prompts = 0..NUM_REQUESTS as u64;
        Self {
            engine: HostTier::new(&config).expect("a tier"),
            model: model::Tier::new(config),
            requests: prompts.map(|prompt| Running { prompt, ..Running::default() }).collect(),
            num_prompts: NUM_REQUESTS as u64,
            stores: Vec::new(),
            loads: Vec::new(),
            reads: Vec::new(),
            memos: HashMap::new(),
            unknown,
        }
    }

    fn position(&self, at: usize) -> Position {
        (self.unknown == 0 || !at.is_multiple_of(self.unknown)).then_some(16 * (at as u32 + 1))
    }

    /// Makes a call of both. Compares their answers and their states after the call.
    pub fn play(&mut self, step: &Step) {
        match step {
            Step::Store { request, first, len, groups } => {
                self.store(*request, *first, *len, groups);
            }
            Step::CompleteStore { at, is_success } if !self.stores.is_empty() => {
                let keys = self.stores.swap_remove(at % self.stores.len());
                self.engine.complete_store(keys.iter().copied(), *is_success);
                self.model.complete_store(&keys, *is_success);
            }
            Step::Load { request, first, len, group } => self.load(*request, *first, *len, *group),
            Step::CompleteLoad { at } if !self.loads.is_empty() => {
                let keys = self.loads.swap_remove(at % self.loads.len());
                self.engine.complete_load(keys.iter().copied()).expect("a load");
                self.engine.set_loading(keys.iter().copied(), false);
                self.model.complete_load(&keys);
            }
            Step::Read { request, first, len, group } => self.read(*request, *first, *len, *group),
            Step::CompleteRead { at } if !self.reads.is_empty() => {
                let keys = self.reads.swap_remove(at % self.reads.len());
                self.engine.complete_read(keys.iter().copied()).expect("a read");
                self.model.complete_read(&keys);
            }
            Step::Touch { prompt, first, len } => {
                let keys: Vec<_> = (*first..first + len).map(|at| key(*prompt, at, 0)).collect();
                self.engine.touch(&keys);
                self.model.touch(&keys);
            }
            Step::LookUp { request, first, len, group, windows } => {
                let prompt = self.requests[*request].prompt;
                let keys: Vec<_> =
                    (*first..first + len).map(|at| key(prompt, at, *group)).collect();
                self.look_up(prompt, &keys, *windows);
            }
            Step::Finish { request } => self.finish(*request),
            Step::Refused { request, first, len, group } => {
                self.refuse(*request, *first, *len, *group);
            }
            Step::Reset => {
                self.engine.reset();
                self.model.reset();
                self.stores.clear();
                self.loads.clear();
                self.reads.clear();
            }
            Step::CompleteStore { .. } | Step::CompleteLoad { .. } | Step::CompleteRead { .. } => {}
        }
        self.compare();
    }

    fn store(&mut self, request: usize, first: usize, len: usize, groups: &[u16]) {
        let prompt = self.requests[request].prompt;
        let all = groups.iter().flat_map(|&group| (first..first + len).map(move |at| (at, group)));
        let (keys, positions): (Vec<_>, Vec<_>) =
            all.map(|(at, group)| (key(prompt, at, group), self.position(at))).unzip();
        self.claim_for_this_tier(request);
        let running = &mut self.requests[request];
        let placed = keys.iter().copied().zip(positions.iter().copied());
        let plan = self.engine.prepare_store(&mut running.engine, placed);
        let wanted = self.model.store(&mut running.model, &keys, &positions);
        let plan = plan.expect("an offer").map(|plan| {
            let stored: Vec<_> = plan.stored.iter().map(|&at| keys[at]).collect();
            (stored, plan.chunks, plan.evicted)
        });
        assert_eq!(plan, wanted);
        self.stores.extend(plan.map(|(stored, ..)| stored));
    }

    fn load(&mut self, request: usize, first: usize, len: usize, group: u16) {
        let prompt = self.requests[request].prompt;
        let hits = self.hits(prompt, first, len, group);
        let keys: Vec<_> = hits.iter().map(|&at| key(prompt, at, group)).collect();
        let positions: Vec<_> = hits.iter().map(|&at| self.position(at)).collect();
        self.claim_for_this_tier(request);
        let running = &mut self.requests[request];
        let placed = keys.iter().copied().zip(positions.iter().copied());
        let chunks = self.engine.prepare_load(&mut running.engine, placed);
        self.model.load(&mut running.model, &keys, &positions);
        assert_eq!(chunks.expect("hits"), self.chunks_of(&keys));
        self.engine.set_loading(keys.iter().copied(), true);
        self.model.loading.extend(&keys);
        self.loads.push(keys);
    }

    fn read(&mut self, request: usize, first: usize, len: usize, group: u16) {
        let prompt = self.requests[request].prompt;
        let hits = self.hits(prompt, first, len, group);
        let keys: Vec<_> = hits.iter().map(|&at| key(prompt, at, group)).collect();
        let chunks = self.engine.prepare_read(keys.iter().copied());
        self.model.read(&keys);
        assert_eq!(chunks.expect("hits"), self.chunks_of(&keys));
        self.reads.push(keys);
    }

    /// Returns which chunks of a part of a prompt are ready.
    fn hits(&self, prompt: u64, first: usize, len: usize, group: u16) -> Vec<usize> {
        let is_ready = |&at: &usize| {
            matches!(self.engine.lookup(&key(prompt, at, group)), Some(ChunkState::Ready { .. }))
        };
        (first..first + len).filter(is_ready).collect()
    }

    fn chunks_of(&self, keys: &[CacheKey]) -> Vec<ChunkId> {
        keys.iter().map(|key| self.model.chunks[key].0).collect()
    }

    fn look_up(&mut self, prompt: u64, keys: &[CacheKey], (window, first_window): (usize, usize)) {
        let Self { engine, model, memos, .. } = self;
        // Other prompts start with the same chunk.
        let first = CacheKey { hash: BlockHash([prompt, 0, 0, keys[0].hash.0[1]]), ..keys[0] };
        let memo = memos.entry(first).or_default();
        let found = engine.lookup_prefix_again(|at| keys[at], keys.len(), memo);
        assert_eq!(found, model.prefix(keys));
        assert_eq!(engine.lookup_prefix(keys.iter().copied()), model.prefix(keys));
        assert_eq!(
            engine.lookup_window(keys.iter().copied(), window, first_window),
            model.window(keys, window, first_window)
        );
        let is_any_loading = keys.iter().any(|key| model.loading.contains(key));
        assert_eq!(engine.is_any_loading(keys.iter().copied()), is_any_loading);
        assert_eq!(engine.num_loading(), model.loading.len());
    }

    fn finish(&mut self, request: usize) {
        let mut running = std::mem::take(&mut self.requests[request]);
        let ats = (0..MAX_PROMPT_LEN).flat_map(|at| (0..3).map(move |group| (at, group)));
        let positions: Vec<_> = ats
            .filter_map(|(at, group)| Some((key(running.prompt, at, group), self.position(at)?)))
            .collect();
        let position = |key: &CacheKey| {
            positions.iter().find(|(other, _)| other == key).map(|&(_, position)| position)
        };
        self.model.finish(&mut running.model, position);
        self.engine.finish_request(&mut running.engine, positions.iter().copied());
        self.requests[request].prompt = self.num_prompts;
        self.requests[request].model.resets = self.model.resets;
        self.num_prompts += 1;
    }

    /// Makes calls that the tier must refuse:
    ///
    /// - It loads keys although one of them has no ready chunk.
    /// - It ends a load that does not exist.
    /// - It offers a key twice.
    /// - It uses a new key after its request has ended.
    fn refuse(&mut self, request: usize, first: usize, len: usize, group: u16) {
        let prompt = self.requests[request].prompt;
        let keys: Vec<_> = (first..first + len).map(|at| key(prompt, at, group)).collect();
        self.claim_for_this_tier(request);
        let Self { engine, model, requests, .. } = self;
        let user = &mut requests[request].engine;
        let placed = |keys: &[CacheKey]| keys.iter().map(|&key| (key, None)).collect::<Vec<_>>();
        let references = |key: &CacheKey| model.chunks.get(key).map(|chunk| chunk.1);
        if keys.iter().any(|key| references(key).is_none_or(|count| count < 0)) {
            assert!(engine.prepare_load(user, placed(&keys).into_iter()).is_err());
            assert!(engine.prepare_read(keys.iter().copied()).is_err());
        }
        if keys.iter().any(|key| references(key).is_none_or(|count| count <= 0)) {
            assert!(engine.complete_load(keys.iter().copied()).is_err());
            assert!(engine.complete_read(keys.iter().copied()).is_err());
        }
        let twice = placed(&[&keys[..], &keys[..1]].concat());
        assert!(engine.prepare_store(user, twice.into_iter()).is_err());
        let mut ended = HostRequest::default();
        engine.claim_for_this_tier(&mut ended);
        engine.finish_request(&mut ended, []);
        let is_used = |key: &CacheKey| match references(key) {
            Some(count) => count >= 0,
            None => model.config.store_threshold < 2,
        };
        if keys.iter().any(is_used) {
            assert!(engine.prepare_store(&mut ended, placed(&keys).into_iter()).is_err());
        }
    }

    /// Starts the request again if there was a reset.
    fn claim_for_this_tier(&mut self, request: usize) {
        let model = &mut self.requests[request].model;
        if model.resets != self.model.resets {
            *model = model::Request { resets: self.model.resets, ..Default::default() };
        }
    }

    fn compare(&self) {
        let Self { engine, model, .. } = self;
        let mut chunks: Vec<_> = engine.keys().collect();
        chunks.sort_by_key(|&(_, chunk)| chunk);
        let mut wanted: Vec<_> =
            model.chunks.iter().map(|(&key, &(chunk, _))| (key, chunk)).collect();
        wanted.sort_by_key(|&(_, chunk)| chunk);
        assert_eq!(chunks, wanted);
        for (key, &(_, references)) in &model.chunks {
            let state = match u32::try_from(references) {
                Ok(num_loads) => ChunkState::Ready { num_loads },
                Err(_) => ChunkState::Pending,
            };
            assert_eq!(engine.lookup(key), Some(state));
        }
        assert_eq!(engine.tracked_offers(), model.tracked);
        match model.config.policy {
            HostPolicy::Lru => assert_eq!(engine.lru_order(), Some(model.lru_order())),
            HostPolicy::Arc => {
                assert_eq!(engine.arc_lists(), Some((model.lists.clone(), model.target)));
            }
            HostPolicy::Adaptive => unreachable!("it has a model of its own"),
        }
        let num_pending = model.chunks.values().filter(|chunk| chunk.1 < 0).count();
        let num_evictable = model.chunks.values().filter(|chunk| chunk.1 == 0).count();
        assert_eq!((engine.num_pending(), engine.num_evictable()), (num_pending, num_evictable));
        assert_eq!(engine.num_free(), model.config.num_chunks - model.chunks.len());
    }
}
