//! The calls of a scheduler to vLLM's offloading connector. This module has the calls for a request,
//! [`step`] the stores of a step, [`leaving`] those under `adaptive`, [`transfers`] the times of
//! transfers, and [`reset`] a reset.

mod leaving;
mod reset;
mod step;
mod transfers;

use std::collections::{HashMap, HashSet};

use kvoxide_core::host::{
    ChunkLookup, HashKeys, Horizon, HostGroup, HostPolicy, HostTier, HostTierConfig, StoreWait,
    WantedLoad,
};
use kvoxide_core::joint::{JointPool, blocks_to_load, note_used};
use kvoxide_core::{BlockId, Error, Manager, NULL_BLOCK, RequestId, RequestView};

use super::geometry::Geometry;
use super::jobs::{Job, Queue};
use super::keys::KeysOfBoth;
use super::report::HostReport;
use super::request::{EndedRequest, Progress, RequestState};
use super::settings::HostMemory;
use crate::clock::Nanoseconds;
use transfers::Pace;

/// A host tier, and the transfers between it and the pool.
#[derive(Debug)]
pub(crate) struct HostConnector {
    settings: HostMemory,
    geometry: Geometry,
    tier: HostTier,
    requests: HashMap<RequestId, RequestState>,
    /// Requests that ended and have not offered their last chunks.
    ended: Vec<EndedRequest>,
    /// Whether requests ended on the recorded server that had computed nothing.
    has_unseen_end: bool,
    preempted: Vec<RequestId>,
    /// The blocks that requests got in this step.
    allocated: HashSet<BlockId>,
    loads: Queue,
    stores: Queue,
    pace: Pace,
    /// How many stores that belong to no request the recorded server began in this step.
    num_recorded_stores: u32,
    /// Whether the stores of the recorded server belonged to no request.
    has_leaving_stores: bool,
    /// Whether the tier was reset since the last step.
    was_reset: bool,
    horizon: Horizon,
    now: Nanoseconds,
    /// The number of steps so far.
    num_steps: u64,
    /// The number of changes of the tier's chunks so far.
    num_changes: u64,
    /// Loads that ended, by request.
    loaded: Vec<RequestId>,
    report: HostReport,
}

/// The tokens of a request that the tier has, beyond the pool's hit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostTokens {
    /// The number of tokens.
    pub num_tokens: usize,
    /// Whether the request has to ask again later, because transfers of its chunks are in progress.
    pub is_later: bool,
    /// The tokens after the hit whose full attention is in pool and tier together, but whose window
    /// or state is in neither.
    pub without_tail: usize,
}

impl HostConnector {
    /// Creates an empty tier for a manager.
    pub fn new(manager: &mut Manager, settings: &HostMemory) -> Result<Self, Error> {
        settings.check()?;
        let config = HostTierConfig {
            store_threshold: settings.store_threshold,
            max_tracker_size: settings.max_tracker_size,
            ..HostTierConfig::new(settings.num_chunks, settings.policy)
        };
        let chunk_bytes = settings.chunk_bytes;
        let tier = HostTier::new(&config)?;
        if settings.policy == HostPolicy::Adaptive {
            JointPool::follow(manager, settings.num_chunks)?;
        }
        Ok(Self {
            tier,
            geometry: Geometry::of(manager),
            requests: HashMap::new(),
            ended: Vec::new(),
            has_unseen_end: false,
            preempted: Vec::new(),
            allocated: HashSet::new(),
            loads: Queue::new(settings.load, chunk_bytes),
            stores: Queue::new(settings.store, chunk_bytes),
            pace: Pace::AtOnce,
            num_recorded_stores: 0,
            has_leaving_stores: false,
            was_reset: false,
            horizon: Horizon::default(),
            now: 0,
            num_steps: 0,
            num_changes: 0,
            loaded: Vec::new(),
            report: HostReport {
                capacity: settings.num_chunks,
                chunk_bytes,
                ..HostReport::default()
            },
            settings: settings.clone(),
        })
    }

    /// Returns whether `adaptive` decides.
    fn decides_over_both(&self) -> bool {
        self.settings.policy == HostPolicy::Adaptive
    }

    fn state(&mut self, request: RequestId) -> &mut RequestState {
        let num_groups = self.geometry.groups().len();
        self.requests.entry(request).or_insert_with(|| RequestState::new(num_groups))
    }

    /// Returns what the tier has of a request beyond the `num_local` tokens that the pool has.
    pub fn look_up(
        &mut self,
        manager: &Manager,
        view: &RequestView<'_>,
        num_local: usize,
    ) -> HostTokens {
        let state = self.state(view.id);
        state.restart();
        let (num_jobs, store_wait) = (state.num_jobs, state.store_wait);
        if num_jobs > 0 || store_wait.is_open(&self.tier) {
            return HostTokens { is_later: true, ..HostTokens::default() };
        }
        let progress = Progress::of(view, 0);
        let groups = 0..self.geometry.groups().len();
        let keys: Vec<_> = groups.map(|at| self.geometry.keys(at, &progress)).collect();
        let wanted = WantedLoad {
            num_computed: num_local,
            num_tokens: view.num_tokens,
            max_new: None,
            max_load: None,
        };
        let search = &self.geometry.search;
        // A hash that needs tokens after its block can be missing.
        let found = match self.decides_over_both() {
            false => search.find(wanted, &keys, &self.tier),
            true => search.find_in_both(wanted, &keys, manager.pool(), &self.tier),
        };
        let (num_tokens, num_blocks) =
            found.map_or((Some(0), 0), |hit| (hit.num_tokens, hit.num_blocks));
        let Some(num_tokens) = num_tokens else {
            return HostTokens { is_later: true, ..HostTokens::default() };
        };
        if num_blocks > 0 && self.waits_for_stores(view.id, num_blocks) {
            return HostTokens { is_later: true, ..HostTokens::default() };
        }
        let search = &self.geometry.search;
        let without_tail = match search.has_windows() {
            true => self.without_tail(manager, &wanted, &keys, num_local + num_tokens),
            false => 0,
        };
        HostTokens { num_tokens, is_later: false, without_tail }
    }

    /// Returns the tokens after a hit whose full attention is in pool and tier together, but whose
    /// window or state is in neither.
    fn without_tail(
        &self,
        manager: &Manager,
        wanted: &WantedLoad,
        keys: &[HashKeys<'_>],
        num_hit: usize,
    ) -> usize {
        let (pool, groups) = (manager.pool(), self.geometry.groups());
        // A hit has all of its full attention.
        let of_group = |(group, &keys): (&HostGroup, _)| KeysOfBoth {
            keys,
            pool,
            num_found: group.window_chunks.map_or(num_hit / group.tokens_per_chunk, |_| 0),
        };
        let mut keys: Vec<_> = groups.iter().zip(keys).map(of_group).collect();
        let full = groups.iter().zip(&mut keys).filter(|(group, _)| group.window_chunks.is_none());
        let ends = full.map(|(group, keys)| {
            let size = group.tokens_per_chunk;
            let places = 0..keys.len().min((wanted.num_tokens - 1) / size);
            keys.num_found = keys.prefix(places, &self.tier).unwrap_or(0);
            keys.num_found * size
        });
        let Some(full_end) = ends.min().filter(|&end| end > num_hit) else { return 0 };
        let whole = WantedLoad { num_computed: 0, ..*wanted };
        let found = self.geometry.search.find(whole, &keys, &self.tier);
        let together = found.map_or(0, |hit| hit.num_tokens.unwrap_or(0));
        full_end.saturating_sub(together.max(num_hit))
    }

    /// Starts the load of `num_tokens` tokens after the pool's `num_local`. The request has got
    /// blocks for them.
    pub fn load(
        &mut self,
        manager: &Manager,
        view: &RequestView<'_>,
        num_local: usize,
        num_tokens: usize,
    ) -> Result<(), Error> {
        let tokens = (num_local, num_local + num_tokens);
        let groups = self.geometry.groups();
        let blocks = blocks_to_load(manager, view, groups, tokens)?;
        let keys: Vec<_> = blocks.iter().map(|it| (it.key, Some(it.position))).collect();
        let ends = groups.iter().map(|group| tokens.1.div_ceil(group.tokens_per_block)).collect();
        let pool = manager.pool();
        let twice = keys.iter().filter(|(key, _)| pool.find(key).is_some()).count();
        let state = self.requests.entry(view.id).or_default();
        state.next = ends;
        state.num_jobs += 1;
        state.store_wait = StoreWait::NotAsked;
        self.tier.prepare_load(&mut state.host, keys.iter().copied())?;
        self.num_changes += 1;
        self.report.loads += 1;
        self.report.loaded_tokens += num_tokens as u64;
        self.report.loaded_twice += twice as u64;
        self.tier.set_loading(keys.iter().map(|&(key, _)| key), true);
        let keys = keys.into_iter().map(|(key, _)| key).collect();
        self.loads.push(Job::new(view.id, keys, self.num_steps));
        match self.pace {
            Pace::Timed => _ = self.loads.begin(self.now),
            Pace::AtOnce => {
                self.loads.take_all().into_iter().for_each(|job| self.end_load(job));
            }
            Pace::Recorded => {}
        }
        Ok(())
    }

    /// Starts a request again that does not read the cache.
    pub fn skip_look_up(&mut self, request: RequestId) {
        self.state(request).restart();
    }

    /// Notes the blocks of a request whose load starts.
    pub fn note_allocated(&mut self, manager: &Manager, request: RequestId) {
        let Ok(held) = manager.blocks_of(request) else { return };
        for table in &held.groups {
            self.allocated.extend(table.blocks.iter().filter(|&block| block != NULL_BLOCK));
        }
    }

    /// Notes the blocks of a request that is admitted.
    pub fn note_table(&mut self, manager: &Manager, view: &RequestView<'_>) {
        let Ok(held) = manager.blocks_of(view.id) else { return };
        self.note_allocated(manager, view.id);
        if self.decides_over_both() {
            return note_used(manager, &mut self.tier, view.id);
        }
        let groups: Vec<_> = self.geometry.groups().iter().map(|group| group.group_idx).collect();
        let state = self.state(view.id);
        state.num_prompt_tokens = view.num_prompt_tokens;
        for (at, group) in groups.into_iter().enumerate() {
            state.set_blocks(at, &held.groups[group].blocks);
        }
    }

    /// Notes the new blocks of a running request.
    pub fn note_new_blocks(&mut self, request: RequestId, new: &[Vec<BlockId>]) {
        self.allocated.extend(new.iter().flatten().filter(|&&block| block != NULL_BLOCK));
        let Some(state) = self.requests.get_mut(&request) else { return };
        for (blocks, group) in state.blocks.iter_mut().zip(self.geometry.groups()) {
            blocks.extend_from_slice(&new[group.group_idx]);
        }
    }

    /// Notes that a request was preempted. Its transfers end before the next step.
    pub fn preempted(&mut self, request: RequestId) {
        self.preempted.push(request);
    }

    /// Notes that a request has ended, or was aborted. It offers its last chunks in the next step.
    pub fn ended(&mut self, view: &RequestView<'_>, is_aborted: bool) {
        let progress = Progress { has_ended: true, ..Progress::of(view, 0) };
        let prompt_only = self.settings.prompt_only;
        let reconsiders = self.geometry.reconsiders_last_tail(&progress, prompt_only);
        let groups: Vec<_> = self.geometry.groups().to_vec();
        let state = self.state(view.id);
        let starts = groups.iter().zip(&state.next);
        let first = starts.map(|(group, next)| next * group.tokens_per_chunk).min().unwrap_or(0);
        let first_hash = if reconsiders { 0 } else { first / self.geometry.hash_block_size };
        self.ended.push(EndedRequest::of(view, first_hash, is_aborted));
    }

    /// Forgets a request that is rejected.
    pub fn rejected(&mut self, request: RequestId) {
        if self.requests.get(&request).is_some_and(|state| state.num_jobs == 0) {
            self.requests.remove(&request);
        }
    }

    /// Returns whether requests have ended that have not offered their last chunks.
    pub fn has_last_offers(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Sorts the last offers of requests that have ended on the recorded server. None of them had
    /// computed anything if `order` is empty.
    pub fn note_last_offers(&mut self, order: &[usize]) {
        self.has_unseen_end = order.is_empty();
        let place = |ended: &EndedRequest| order.iter().position(|&it| it as u64 == ended.id);
        self.ended.sort_by_key(place);
    }

    /// Adds a sample of the chunks whose blocks the pool has too.
    pub fn sample(&mut self, manager: &Manager) {
        let pool = manager.pool();
        for (key, _) in self.tier.keys() {
            self.report.sampled += 1;
            self.report.sampled_twice += u64::from(pool.find(&key).is_some());
        }
    }

    /// Counts tokens without a tail, of a request that is admitted.
    pub fn count_without_tail(&mut self, num_tokens: usize) {
        self.report.without_tail += num_tokens as u64;
    }

    /// Returns the counts so far.
    pub fn report(&self) -> HostReport {
        let transfers = self.tier.transfers();
        HostReport {
            stored: transfers.stored,
            loaded: transfers.loaded,
            never_loaded: transfers.never_loaded,
            store_time: self.stores.busy,
            load_time: self.loads.busy,
            ..self.report
        }
    }
}
