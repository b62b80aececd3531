//! The calls of a scheduler to vLLM's offloading connector.

use std::collections::{HashMap, HashSet};

use kvoxide_core::host::{ChunkLookup, HostGroup, HostTier, HostTierConfig, WantedLoad};
use kvoxide_core::{BlockId, Error, Manager, NULL_BLOCK, RequestId, RequestView};

use super::geometry::{Geometry, GroupMask};
use super::jobs::{Job, Queue};
use super::keys::KeysOfBoth;
use super::offers::{Offer, Offered};
use super::report::HostReport;
use super::request::{EndedRequest, Progress, RequestState};
use super::settings::HostMemory;
use crate::clock::Nanoseconds;

/// A host tier, and the transfers between it and the pool.
#[derive(Debug)]
pub(crate) struct HostConnector {
    settings: HostMemory,
    geometry: Geometry,
    tier: HostTier,
    requests: HashMap<RequestId, RequestState>,
    /// Requests that ended and have not offered their last chunks.
    ended: Vec<EndedRequest>,
    preempted: Vec<RequestId>,
    /// The blocks that requests got in this step.
    allocated: HashSet<BlockId>,
    loads: Queue,
    stores: Queue,
    pace: Pace,
    now: Nanoseconds,
    /// The number of steps so far.
    num_steps: u64,
    /// Loads that ended, by request.
    loaded: Vec<RequestId>,
    report: HostReport,
}

/// The rule for the ends of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Loads end at once, and stores with their step.
    AtOnce,
    /// Transfers take time, one after the other in each direction.
    Timed,
    /// Transfers end when they ended on a recorded server, or after [`MOST_STEPS`].
    Recorded,
}

/// The most steps for which a transfer waits for its recorded end. A transfer that the server did
/// not make has none.
const MOST_STEPS: u64 = 64;

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
    pub fn new(manager: &Manager, settings: &HostMemory) -> Result<Self, Error> {
        settings.check()?;
        let config = HostTierConfig {
            store_threshold: settings.store_threshold,
            max_tracker_size: settings.max_tracker_size,
            ..HostTierConfig::new(settings.num_chunks, settings.policy)
        };
        let chunk_bytes = settings.chunk_bytes;
        Ok(Self {
            tier: HostTier::new(&config)?,
            geometry: Geometry::of(manager),
            requests: HashMap::new(),
            ended: Vec::new(),
            preempted: Vec::new(),
            allocated: HashSet::new(),
            loads: Queue::new(settings.load, chunk_bytes),
            stores: Queue::new(settings.store, chunk_bytes),
            pace: Pace::AtOnce,
            now: 0,
            num_steps: 0,
            loaded: Vec::new(),
            report: HostReport {
                capacity: settings.num_chunks,
                chunk_bytes,
                ..HostReport::default()
            },
            settings: settings.clone(),
        })
    }

    /// Lets transfers take time.
    pub fn keep_time(&mut self) {
        self.pace = Pace::Timed;
    }

    /// Lets transfers end when [`Self::end_transfer`] is called.
    pub fn follow(&mut self) {
        self.pace = Pace::Recorded;
    }

    /// Ends the oldest transfer of a request in one direction, if there is one.
    pub fn end_transfer(&mut self, request: RequestId, is_store: bool) {
        let queue = if is_store { &mut self.stores } else { &mut self.loads };
        match (queue.take_first_of(request), is_store) {
            (Some(job), true) => self.end_store(job),
            (Some(job), false) => self.end_load(job),
            (None, _) => {}
        }
    }

    /// Ends all transfers.
    pub fn end_all_transfers(&mut self) {
        self.stores.take_all().into_iter().for_each(|job| self.end_store(job));
        self.loads.take_all().into_iter().for_each(|job| self.end_load(job));
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
        if state.num_jobs > 0 {
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
        let found = search.find(wanted, &keys, &self.tier);
        let Some(num_tokens) = found.map_or(Some(0), |hit| hit.num_tokens) else {
            return HostTokens { is_later: true, ..HostTokens::default() };
        };
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
        keys: &[super::keys::GroupKeys<'_>],
        num_hit: usize,
    ) -> usize {
        let pool = manager.pool();
        let keys: Vec<_> = keys.iter().map(|&keys| KeysOfBoth { keys, pool }).collect();
        let groups = self.geometry.groups().iter().zip(&keys);
        let full = groups.filter(|(group, _)| group.window_chunks.is_none());
        let ends = full.map(|(group, keys)| {
            let places = 0..keys.len().min((wanted.num_tokens - 1) / group.tokens_per_chunk);
            keys.prefix(places, &self.tier).unwrap_or(0) * group.tokens_per_chunk
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
        let held = manager.blocks_of(view.id)?;
        let progress = Progress::of(view, 0);
        let end = num_local + num_tokens;
        let mut keys = Vec::new();
        let mut ends = Vec::new();
        for (at, group) in self.geometry.groups().iter().enumerate() {
            let table = &held.groups[group.group_idx].blocks;
            let (first, last) =
                (num_local.div_ceil(group.tokens_per_block), end.div_ceil(group.tokens_per_block));
            let is_empty = |&place: &usize| {
                let block = table.get(place).filter(|&block| block != NULL_BLOCK);
                block.is_some_and(|block| manager.pool().keys_of(block).next().is_none())
            };
            let first = (first..last).find(is_empty).unwrap_or(last);
            let of_group = self.geometry.keys(at, &progress);
            for place in first..last.min(of_group.len()) {
                keys.push((
                    of_group.at(place),
                    Some(((place + 1) * group.tokens_per_chunk) as u32),
                ));
            }
            ends.push(last);
        }
        let pool = manager.pool();
        let twice = keys.iter().filter(|(key, _)| pool.find(key).is_some()).count();
        let state = self.requests.entry(view.id).or_default();
        state.next = ends;
        state.num_jobs += 1;
        self.tier.prepare_load(&mut state.host, keys.iter().copied())?;
        self.report.loads += 1;
        self.report.loaded_twice += twice as u64;
        self.tier.set_loading(keys.iter().map(|&(key, _)| key), true);
        let keys = keys.into_iter().map(|(key, _)| key).collect();
        self.loads.push(Job::new(view.id, keys, self.num_steps));
        match self.pace {
            Pace::Timed => self.loads.begin(self.now),
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

    /// Notes that a request has ended. It offers its last chunks in the next step.
    pub fn ended(&mut self, view: &RequestView<'_>) {
        let progress = Progress { has_ended: true, ..Progress::of(view, 0) };
        let prompt_only = self.settings.prompt_only;
        let reconsiders = self.geometry.reconsiders_last_tail(&progress, prompt_only);
        let groups: Vec<_> = self.geometry.groups().to_vec();
        let state = self.state(view.id);
        let starts = groups.iter().zip(&state.next);
        let first = starts.map(|(group, next)| next * group.tokens_per_chunk).min().unwrap_or(0);
        let first_hash = if reconsiders { 0 } else { first / self.geometry.hash_block_size };
        self.ended.push(EndedRequest::of(view, first_hash));
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

    /// Sorts the last offers of requests that have ended.
    pub fn sort_last_offers(&mut self, order: &[usize]) {
        let place = |ended: &EndedRequest| order.iter().position(|&it| it as u64 == ended.id);
        self.ended.sort_by_key(place);
    }

    /// Makes the stores of a step: states that the manager hands over, then the offers of
    /// `scheduled` requests with their new tokens, then the offers of requests that have ended.
    /// Returns the time for which the step waits, because it needs blocks that are being stored.
    pub fn step_scheduled<'a>(
        &mut self,
        manager: &mut Manager,
        scheduled: impl Iterator<Item = (RequestView<'a>, usize)> + Clone,
    ) -> Result<Nanoseconds, Error> {
        let fence = self.fence();
        self.forget_taken_blocks();
        let offloads = manager.take_offloads();
        if !offloads.is_empty() {
            for (view, num_new) in scheduled.clone() {
                let own = offloads.iter().filter(|offload| offload.request == view.id);
                own.into_iter().try_for_each(|offload| {
                    self.store_state(&Progress::of(&view, num_new), offload)
                })?;
            }
        }
        for (view, num_new) in scheduled {
            self.offer(view.id, &Progress::of(&view, num_new))?;
        }
        for ended in std::mem::take(&mut self.ended) {
            self.offer(ended.id, &ended.progress())?;
            self.finish(ended.id);
        }
        self.allocated.clear();
        self.preempted.clear();
        self.report.skipped += self.tier.take_num_skipped() as u64;
        self.tier.take_store_sizes();
        Ok(fence)
    }

    /// Returns how long the step waits for stores whose blocks it needs.
    fn fence(&mut self) -> Nanoseconds {
        if self.stores.next_end().is_none() {
            return 0;
        }
        let mut ended: HashSet<_> = self.ended.iter().map(|ended| ended.id).collect();
        let states = self.requests.iter().filter(|(_, state)| state.has_ended);
        ended.extend(states.map(|(&request, _)| request));
        let end = self.stores.last_end_of(&self.allocated, &self.preempted, &ended);
        let fence = end.map_or(0, |end| end.saturating_sub(self.now));
        self.report.fence_time += fence;
        fence
    }

    /// Forgets blocks that left windows and that requests got in this step.
    fn forget_taken_blocks(&mut self) {
        let groups = self.geometry.groups();
        let prompt_only = self.settings.prompt_only;
        for state in self.requests.values_mut() {
            let windows = groups.iter().enumerate();
            let windows = windows.filter(|(_, group)| group.window_chunks.is_some());
            for (at, group) in windows.filter(|_| !self.allocated.is_empty()) {
                let most = match prompt_only {
                    true => state.num_prompt_tokens / group.tokens_per_chunk,
                    false => usize::MAX,
                };
                state.forget_taken_blocks(at, most, &self.allocated);
            }
            state.end_step();
        }
    }

    /// Stores a state that the manager hands over.
    fn store_state(
        &mut self,
        progress: &Progress<'_>,
        offload: &kvoxide_core::Offload,
    ) -> Result<(), Error> {
        let is_group = |group: &HostGroup| group.group_idx == usize::from(offload.group);
        let Some(at) = self.geometry.groups().iter().position(is_group) else { return Ok(()) };
        let size = self.geometry.groups()[at].tokens_per_chunk;
        let most = match self.settings.prompt_only {
            true => progress.num_tokens.min(progress.num_prompt_tokens),
            false => progress.num_tokens,
        };
        let is_stored = offload.block != NULL_BLOCK
            && offload.num_tokens <= most
            && offload.num_tokens.is_multiple_of(size)
            && offload.num_tokens > 0;
        if !is_stored || self.geometry.masks[at] != GroupMask::HandedOver {
            return Ok(());
        }
        let keys = self.geometry.keys(at, progress);
        let place = offload.num_tokens / size - 1;
        if place >= keys.len() {
            return Ok(());
        }
        let (position, block) = (offload.num_tokens as u32, offload.block);
        let chunk = Offered { key: keys.at(place), position, group: at, block };
        self.store(offload.request, &[chunk]).map(drop)
    }

    /// Stores what a request offers.
    fn offer(&mut self, request: RequestId, progress: &Progress<'_>) -> Result<(), Error> {
        let prompt_only = self.settings.prompt_only;
        let Some(state) = self.requests.get(&request) else { return Ok(()) };
        if !self.geometry.may_offer(state, progress, prompt_only) {
            return Ok(());
        }
        let Offer { chunks, ends } = self.geometry.offer(state, progress, prompt_only);
        let has_room = chunks.is_empty() || self.store(request, &chunks)?;
        // An offer without room is repeated in the next step.
        if has_room {
            let next = &mut self.state(request).next;
            next.iter_mut().zip(ends).for_each(|(next, end)| *next = end.max(*next));
        }
        Ok(())
    }

    /// Stores chunks that a request offers. Returns whether there was room.
    fn store(&mut self, request: RequestId, chunks: &[Offered]) -> Result<bool, Error> {
        let num_groups = self.geometry.groups().len();
        let state = self.requests.entry(request).or_insert_with(|| RequestState::new(num_groups));
        let keys = chunks.iter().map(|chunk| (chunk.key, Some(chunk.position)));
        let plan = self.tier.prepare_store_of_distinct(&mut state.host, keys)?;
        let Some(plan) = plan else {
            self.report.refused += 1;
            return Ok(false);
        };
        self.report.evicted += plan.evicted.len() as u64;
        if plan.stored.is_empty() {
            return Ok(true);
        }
        let groups = self.geometry.groups();
        let is_tail = |chunk: &Offered| groups[chunk.group].window_chunks.is_some();
        let stored: Vec<_> = plan.stored.iter().map(|&at| chunks[at]).collect();
        self.report.stored_tails += stored.iter().filter(|chunk| is_tail(chunk)).count() as u64;
        state.num_jobs += 1;
        let keys = stored.iter().map(|chunk| chunk.key).collect();
        let blocks = stored.iter().map(|chunk| chunk.block).collect();
        let is_fenced = stored.iter().any(is_tail);
        let job = Job::new(request, keys, self.num_steps).of_blocks(blocks, is_fenced);
        self.stores.push(job);
        Ok(true)
    }

    /// Tells the tier that a request has ended.
    fn finish(&mut self, request: RequestId) {
        let Some(state) = self.requests.get_mut(&request) else { return };
        state.has_ended = true;
        self.tier.finish_request(&mut state.host, []);
        if state.num_jobs == 0 {
            self.requests.remove(&request);
        }
    }

    /// Ends a step at time `now`. Its stores begin.
    pub fn step_has_run(&mut self, now: Nanoseconds) {
        self.num_steps += 1;
        match self.pace {
            Pace::Timed => self.stores.begin(now),
            Pace::AtOnce => {
                self.stores.take_all().into_iter().for_each(|job| self.end_store(job));
            }
            Pace::Recorded => {
                let first = self.num_steps.saturating_sub(MOST_STEPS);
                let late = self.stores.take_before(first);
                late.into_iter().for_each(|job| self.end_store(job));
            }
        }
        self.set_now(now);
    }

    /// Ends the transfers that have ended at time `now`.
    pub fn set_now(&mut self, now: Nanoseconds) {
        self.now = now;
        let stores = self.stores.take_ended(now);
        stores.into_iter().for_each(|job| self.end_store(job));
        let loads = self.loads.take_ended(now);
        loads.into_iter().for_each(|job| self.end_load(job));
    }

    fn end_store(&mut self, job: Job) {
        self.tier.complete_store(job.keys.iter().copied(), true);
        self.end_job(job.request);
    }

    fn end_load(&mut self, job: Job) {
        let keys = || job.keys.iter().copied();
        let ended = self.tier.complete_load(keys());
        debug_assert!(ended.is_ok(), "prepared before");
        self.tier.set_loading(keys(), false);
        self.loaded.push(job.request);
        self.end_job(job.request);
    }

    fn end_job(&mut self, request: RequestId) {
        let Some(state) = self.requests.get_mut(&request) else { return };
        state.num_jobs -= 1;
        if state.has_ended && state.num_jobs == 0 {
            self.requests.remove(&request);
        }
    }

    /// Takes the requests whose loads have ended.
    pub fn take_loaded(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.loaded)
    }

    /// Returns whether transfers are in progress or begin with the end of the step.
    pub fn has_transfers(&self) -> bool {
        self.loads.has_jobs() || self.stores.has_jobs()
    }

    /// Returns the time of the next end of a load.
    pub fn next_load_end(&self) -> Option<Nanoseconds> {
        self.loads.next_end()
    }

    /// Returns the time of the next end of a store.
    pub fn next_store_end(&self) -> Option<Nanoseconds> {
        self.stores.next_end()
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
