//! The cache of a scheduler: the block manager, or a cache that never evicts.

mod unlimited;

use std::collections::HashMap;
use std::sync::Arc;

use kvoxide_core::{
    AllocateArgs, Manager, ManagerConfig, PrefixHit, RequestId, RequestRetention, RequestView,
    RetentionReport, SlotDemand,
};

use serde::{Deserialize, Serialize};

use crate::baselines::{Baseline, Callers};
use crate::host::{HostConnector, HostMemory, HostTokens};
use crate::losses::{Ledger, Losses, Shared};
use crate::no_op_steps::NoOpSteps;
use crate::trace::Trace;
pub use unlimited::UnlimitedCache;

/// The calls of a scheduler. Lengths are in tokens.
pub trait Cache {
    /// Notes that a request arrives, at a time in microseconds. It can ask for a retention of its
    /// blocks.
    fn arrives(
        &mut self,
        _request: RequestId,
        _arrival: Option<u64>,
        _retention: Option<RequestRetention>,
    ) {
    }

    /// Returns the longest cached prefix of a request and its shared-prefix boundary.
    fn look_up(&mut self, request: &RequestView<'_>) -> Result<Hit, kvoxide_core::Error>;

    /// Looks up a request that does not wait for transfers: if it has to, they end now.
    fn look_up_at_once(&mut self, request: &RequestView<'_>) -> Result<Hit, kvoxide_core::Error> {
        let hit = self.look_up(request)?;
        if !hit.is_later {
            return Ok(hit);
        }
        if let Some((host, _)) = self.host() {
            host.end_all_transfers();
        }
        self.look_up(request)
    }

    /// Returns the hit of a request that does not read the cache.
    fn without_look_up(&mut self, _request: &RequestView<'_>) -> Hit {
        Hit::none()
    }

    /// Attaches a hit, if one is given, and allocates slots for more tokens. Returns `false` if too
    /// few blocks are free.
    fn allocate(
        &mut self,
        request: &RequestView<'_>,
        slots: Slots,
        hit: Option<&Hit>,
    ) -> Result<bool, kvoxide_core::Error>;

    /// Returns the losses of a request that got its first slots with a hit.
    fn losses(&self, _request: &RequestView<'_>, _hit: &Hit) -> Losses {
        Losses::default()
    }

    /// Returns the part of a request's prompt that earlier requests computed.
    fn shared(&self, _request: &RequestView<'_>) -> Shared {
        Shared::default()
    }

    /// Records that a request got slots for its tokens from `start` to `end`.
    fn note_computed(&mut self, _request: &RequestView<'_>, _start: usize, _end: usize) {}

    /// Releases all blocks of a request.
    fn free(&mut self, request: RequestId);

    /// Releases all blocks of a request that will run again.
    fn preempt(&mut self, request: RequestId) {
        self.free(request);
    }

    /// Returns the CPU memory and the manager, if there is CPU memory.
    fn host(&mut self) -> Option<(&mut HostConnector, &mut Manager)> {
        None
    }

    /// Allocates blocks for the tokens of a hit and starts the load of those in CPU memory. Leaves
    /// `num_reserved` free blocks to other requests. Returns `false` if too few are free.
    fn load(
        &mut self,
        _request: &RequestView<'_>,
        _hit: &Hit,
        _slots: Slots,
        _num_reserved: isize,
    ) -> Result<bool, kvoxide_core::Error> {
        Ok(false)
    }

    /// Caches the blocks of a request whose load has ended.
    fn end_load(&mut self, _request: &RequestView<'_>) -> Result<(), kvoxide_core::Error> {
        Ok(())
    }

    /// Returns how many more blocks a request needs for its whole prompt.
    fn num_missing_blocks(
        &mut self,
        _request: &RequestView<'_>,
    ) -> Result<isize, kvoxide_core::Error> {
        Ok(0)
    }

    /// Caches the blocks of a request that are full after `num_computed_tokens` are computed.
    fn cache(&mut self, _request: &RequestView<'_>, _num_computed_tokens: usize) {}

    /// Forgets everything that is cached. If blocks are in use, forgets nothing and returns
    /// `false`.
    fn reset(&mut self) -> bool;

    /// Starts a step.
    fn step_starts(&mut self) {}

    /// Ends a step, which has also run its copies.
    fn step_has_run(&mut self) -> Result<(), kvoxide_core::Error> {
        Ok(())
    }

    /// Returns the occupancy of the pool.
    fn occupancy(&self) -> Occupancy;

    /// Returns the statistics of retention, if the cache has any. Takes time proportional to the
    /// pool.
    fn retention(&self) -> Option<RetentionReport> {
        None
    }

    /// Returns how many tokens all admitted requests hit in blocks with generated tokens, if the
    /// cache counts them.
    fn hit_answer_tokens(&self) -> Option<u64> {
        None
    }

    /// Returns the length of the hit that [`Self::look_up`] would find. Changes nothing.
    fn cached_length(&self, request: &RequestView<'_>) -> Result<usize, kvoxide_core::Error>;

    /// Returns the number of computed tokens at the next decode step that needs a call of
    /// [`Self::allocate`]. Steps are counted from `num_computed_tokens` on.
    fn next_call(&self, num_computed_tokens: usize) -> usize;
}

/// The slots that a request needs, in tokens.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// The number of tokens to compute in this step.
    pub num_new_tokens: usize,
    /// The number of additional slots for draft tokens.
    pub num_lookahead_tokens: usize,
    /// Whether a waiting request is refused if its whole sequence does not fit now.
    pub whole_must_fit: bool,
    /// Whether other requests run.
    pub has_running: bool,
}

impl Slots {
    /// Returns slots for a scheduler that admits a request only if all of it fits.
    pub fn of(num_new_tokens: usize) -> Self {
        Self { num_new_tokens, num_lookahead_tokens: 0, whole_must_fit: true, has_running: true }
    }
}

/// A hit.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The length of the hit, in tokens, including tokens in CPU memory.
    pub length: usize,
    /// The number of these tokens that are loaded from CPU memory.
    pub num_loaded: usize,
    /// Whether the request has to wait for transfers from or to CPU memory.
    pub is_later: bool,
    /// The tokens after the hit whose full attention is in GPU and CPU memory together, but whose
    /// window or state is in neither.
    pub without_tail: usize,
    /// The end of a shared prefix whose tail is not cached; 0 if there is none.
    pub shared_prefix_boundary: usize,
    /// The number of tokens whose full-attention blocks are cached.
    full_length: usize,
    blocks: Option<PrefixHit>,
}

impl Hit {
    /// Returns an empty hit for the same cached blocks of full attention.
    pub fn dropped(self) -> Self {
        Self { length: 0, num_loaded: 0, blocks: None, ..self }
    }

    fn of_pool(
        length: usize,
        shared_prefix_boundary: usize,
        full_length: usize,
        blocks: Option<PrefixHit>,
    ) -> Self {
        Self {
            length,
            num_loaded: 0,
            is_later: false,
            without_tail: 0,
            shared_prefix_boundary,
            full_length,
            blocks,
        }
    }

    /// Returns the number of tokens that the pool has.
    pub fn num_local(&self) -> usize {
        self.length - self.num_loaded
    }

    /// Returns the hit of a request that does not read the cache.
    pub fn none() -> Self {
        Self::of_pool(0, 0, 0, None)
    }
}

impl Hit {
    /// Adds the tokens that CPU memory has after the pool's hit. vLLM asks for tokens after the last
    /// whole block of a hit.
    fn with_host(
        self,
        host: &mut HostConnector,
        manager: &Manager,
        request: &RequestView<'_>,
    ) -> Result<Self, kvoxide_core::Error> {
        let num_partial = self.length % manager.scheduler_block_size();
        let num_whole = self.length - num_partial;
        let found = host.look_up(manager, request, num_whole);
        let HostTokens { num_tokens, is_later, without_tail } = found;
        if num_tokens <= num_partial {
            return Ok(Self { is_later, without_tail, ..self });
        }
        let blocks = match self.blocks {
            Some(hit) if num_partial > 0 => {
                let blocks = Arc::new(manager.truncated(&hit.blocks, num_whole)?);
                Some(PrefixHit { blocks, length: num_whole, ..hit })
            }
            blocks => blocks,
        };
        let length = num_whole + num_tokens;
        Ok(Self { length, num_loaded: num_tokens, is_later, without_tail, blocks, ..self })
    }
}

/// The occupancy of a pool, in blocks.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Occupancy {
    /// The number of blocks, without the null block.
    pub capacity: usize,
    /// The number of blocks in use.
    pub used: usize,
    /// The number of blocks with a key.
    pub cached: usize,
    /// The number of pinned blocks.
    pub pinned: usize,
    /// The number of evicted blocks so far.
    pub evictions: u64,
}

/// The block manager, and a ledger of its losses.
#[derive(Debug)]
pub struct ManagedCache {
    manager: Manager,
    ledger: Option<Ledger>,
    no_op_steps: Option<NoOpSteps>,
    retentions: HashMap<RequestId, Arc<RequestRetention>>,
    /// The sessions of requests, for a policy that needs them.
    callers: Option<Callers>,
    host: Option<Box<HostConnector>>,
}

impl ManagedCache {
    /// Returns a cache with a new manager.
    pub fn new(config: ManagerConfig) -> Result<Self, kvoxide_core::Error> {
        let manager = Manager::new(config)?;
        let no_op_steps = NoOpSteps::of(&manager);
        Ok(Self {
            manager,
            ledger: None,
            no_op_steps,
            retentions: HashMap::new(),
            callers: None,
            host: None,
        })
    }

    /// Starts to record the losses of this trace, and evictions by group.
    pub fn record_losses(&mut self, trace: &Trace, tokens_per_id: usize) {
        self.manager.pool_mut().index_mut().count_evictions_by_group();
        self.ledger = Some(Ledger::new(trace, tokens_per_id, &self.manager));
    }

    /// Evicts by a simple policy. Fails if the retention policy has an order of its own.
    pub fn evict_by(
        &mut self,
        baseline: Baseline,
        trace: &Trace,
    ) -> Result<(), kvoxide_core::Error> {
        let callers = Callers::of(trace);
        let pool = self.manager.pool_mut();
        pool.evict_by(baseline.policy(pool.num_blocks() - 1, callers.caller()))?;
        self.callers = Some(callers);
        Ok(())
    }

    /// Adds CPU memory.
    pub fn add_host(&mut self, memory: &HostMemory) -> Result<(), kvoxide_core::Error> {
        self.host = Some(Box::new(HostConnector::new(&self.manager, memory)?));
        Ok(())
    }

    /// Notes that the next calls are a request's.
    fn begin_call(&self, request: RequestId) {
        if let Some(callers) = &self.callers {
            callers.begin(request);
        }
    }

    /// Returns the number of tokens per block hash.
    pub fn hash_block_size(&self) -> usize {
        self.manager.hash_block_size()
    }

    /// Returns the manager.
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Returns a cache for the same groups that never evicts.
    pub fn unlimited(&self, trace: &Trace, tokens_per_id: usize) -> UnlimitedCache {
        UnlimitedCache::new(trace, tokens_per_id, self.manager.scheduler_block_size())
    }
}

impl Cache for ManagedCache {
    fn arrives(
        &mut self,
        request: RequestId,
        arrival: Option<u64>,
        retention: Option<RequestRetention>,
    ) {
        let has_end = retention.as_ref().is_some_and(RequestRetention::has_end);
        if let Some(retention) = retention {
            self.retentions.insert(request, Arc::new(retention));
        }
        if let Some(arrival) = arrival.filter(|_| self.manager.has_times_to_live() || has_end) {
            self.manager.set_now(arrival / 1_000);
        }
    }

    fn look_up(&mut self, request: &RequestView<'_>) -> Result<Hit, kvoxide_core::Error> {
        let max_length = request.num_tokens - 1;
        let hit = self.manager.get_computed_blocks(request.id, &request.hashes, max_length)?;
        let full_length = match &self.ledger {
            Some(ledger) => ledger.full_length(&self.manager, request, &hit)?,
            None => hit.length,
        };
        let (num_local, boundary) = (hit.length, hit.shared_prefix_boundary);
        let found = Hit::of_pool(num_local, boundary, full_length, Some(hit));
        match &mut self.host {
            None => Ok(found),
            Some(host) => found.with_host(host, &self.manager, request),
        }
    }

    fn allocate(
        &mut self,
        request: &RequestView<'_>,
        slots: Slots,
        hit: Option<&Hit>,
    ) -> Result<bool, kvoxide_core::Error> {
        self.begin_call(request.id);
        let hit_blocks = hit.and_then(|hit| hit.blocks.as_ref());
        let args = AllocateArgs {
            num_new_tokens: slots.num_new_tokens,
            num_lookahead_tokens: slots.num_lookahead_tokens,
            num_new_computed_tokens: hit_blocks.map_or(0, |hit| hit.length),
            new_computed_blocks: hit_blocks
                .filter(|hit| hit.length > 0)
                .map_or(&[], |hit| &hit.blocks),
            full_sequence_must_fit: hit.is_some() && slots.whole_must_fit,
            has_scheduled_reqs: slots.has_running,
            ..AllocateArgs::default()
        };
        let retention = self.retentions.get(&request.id);
        let allocate = |manager: &mut Manager| manager.allocate_slots(request, &args);
        let new_blocks = self.manager.with_retention(retention, allocate)?;
        if let (Some(new_blocks), Some(host)) = (&new_blocks, &mut self.host) {
            match request.is_waiting {
                true => host.note_table(&self.manager, request),
                false => host.note_new_blocks(request.id, new_blocks),
            }
        }
        Ok(new_blocks.is_some())
    }

    fn without_look_up(&mut self, request: &RequestView<'_>) -> Hit {
        if let Some(host) = &mut self.host {
            host.skip_look_up(request.id);
        }
        Hit::none()
    }

    fn host(&mut self) -> Option<(&mut HostConnector, &mut Manager)> {
        let host = self.host.as_deref_mut()?;
        Some((host, &mut self.manager))
    }

    fn load(
        &mut self,
        request: &RequestView<'_>,
        hit: &Hit,
        slots: Slots,
        num_reserved: isize,
    ) -> Result<bool, kvoxide_core::Error> {
        self.begin_call(request.id);
        let num_local = hit.num_local();
        let hit_blocks = hit.blocks.as_ref().filter(|_| num_local > 0);
        let args = AllocateArgs {
            num_new_computed_tokens: num_local,
            new_computed_blocks: hit_blocks.map_or(&[], |hit| &hit.blocks),
            num_external_computed_tokens: hit.num_loaded,
            delay_cache_blocks: true,
            full_sequence_must_fit: slots.whole_must_fit,
            reserved_blocks: num_reserved,
            has_scheduled_reqs: slots.has_running,
            ..AllocateArgs::default()
        };
        let retention = self.retentions.get(&request.id);
        let allocate = |manager: &mut Manager| manager.allocate_slots(request, &args);
        if self.manager.with_retention(retention, allocate)?.is_none() {
            return Ok(false);
        }
        if let Some(host) = &mut self.host {
            host.note_allocated(&self.manager, request.id);
            host.load(&self.manager, request, num_local, hit.num_loaded)?;
        }
        Ok(true)
    }

    fn end_load(&mut self, request: &RequestView<'_>) -> Result<(), kvoxide_core::Error> {
        self.begin_call(request.id);
        self.manager.cache_blocks(request, request.num_computed_tokens)
    }

    fn num_missing_blocks(
        &mut self,
        request: &RequestView<'_>,
    ) -> Result<isize, kvoxide_core::Error> {
        let demand = SlotDemand {
            num_tokens: request.num_tokens,
            num_tokens_main_model: request.num_tokens,
            total_computed_tokens: request.num_computed_tokens,
            num_local_computed_tokens: request.num_computed_tokens,
            apply_admission_cap: true,
            prefill_end: request.num_prompt_tokens.max(request.num_tokens.saturating_sub(1)),
            ..SlotDemand::default()
        };
        self.manager.get_num_blocks_to_allocate(request.id, &demand)
    }

    fn losses(&self, request: &RequestView<'_>, hit: &Hit) -> Losses {
        let losses = |ledger: &Ledger| ledger.losses(request, hit.length, hit.full_length);
        self.ledger.as_ref().map(losses).unwrap_or_default()
    }

    fn shared(&self, request: &RequestView<'_>) -> Shared {
        self.ledger.as_ref().map(|ledger| ledger.shared(request)).unwrap_or_default()
    }

    fn note_computed(&mut self, request: &RequestView<'_>, start: usize, end: usize) {
        if let Some(ledger) = &mut self.ledger {
            ledger.note_computed(&self.manager, request, start, end);
        }
    }

    fn free(&mut self, request: RequestId) {
        self.begin_call(request);
        // A request that never got a block is unknown to the manager.
        let retention = self.retentions.get(&request);
        let _ = self.manager.with_retention(retention, |manager| manager.free(request));
    }

    fn preempt(&mut self, request: RequestId) {
        self.begin_call(request);
        let retention = self.retentions.get(&request).map(|it| Arc::new(it.while_preempted()));
        let _ = self.manager.with_retention(retention.as_ref(), |manager| manager.free(request));
    }

    fn cache(&mut self, request: &RequestView<'_>, num_computed_tokens: usize) {
        self.begin_call(request.id);
        // Missing blocks have no tokens to cache.
        let _ = self.manager.cache_blocks(request, num_computed_tokens);
    }

    fn reset(&mut self) -> bool {
        self.manager.reset_prefix_cache()
    }

    fn step_starts(&mut self) {
        self.manager.new_step_starts();
    }

    fn step_has_run(&mut self) -> Result<(), kvoxide_core::Error> {
        let _ = self.manager.take_offloads();
        let copies = self.manager.take_block_copies();
        let copied: Vec<_> = copies.into_iter().flat_map(|(from, to)| [from, to]).collect();
        if copied.is_empty() { Ok(()) } else { self.manager.release_blocks(&copied) }
    }

    fn occupancy(&self) -> Occupancy {
        let pool = self.manager.pool();
        Occupancy {
            capacity: pool.num_blocks() - 1,
            used: pool.num_blocks() - 1 - pool.num_free_blocks() as usize,
            cached: pool.index().num_cached(),
            pinned: pool.num_pinned_blocks(),
            evictions: pool.index().evictions(),
        }
    }

    fn retention(&self) -> Option<RetentionReport> {
        Some(self.manager.retention_report())
    }

    fn hit_answer_tokens(&self) -> Option<u64> {
        let is_adaptive = self.manager.pool().adaptive().is_some();
        is_adaptive.then(|| self.manager.admitted().hit_answer_tokens)
    }

    fn cached_length(&self, request: &RequestView<'_>) -> Result<usize, kvoxide_core::Error> {
        Ok(self.manager.find_longest_hit(&request.hashes, request.num_tokens - 1)?.length)
    }

    fn next_call(&self, num_computed_tokens: usize) -> usize {
        let steps = self.no_op_steps.as_ref();
        steps.map_or(num_computed_tokens, |steps| steps.next_call(num_computed_tokens))
    }
}
