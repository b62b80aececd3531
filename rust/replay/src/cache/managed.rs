//! A cache that is the block manager, with CPU memory if it has any.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kvoxide_core::{
    AllocateArgs, BlockId, Manager, ManagerConfig, PrefixHit, RequestId, RequestRetention,
    RequestView, RetentionReport, SlotDemand,
};

use super::{Cache, Hit, Occupancy, Slots, UnlimitedCache};
use crate::baselines::{Baseline, Callers};
use crate::host::{HostConnector, HostMemory};
use crate::losses::{Ledger, Losses, Shared};
use crate::no_op_steps::NoOpSteps;
use crate::trace::Trace;

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
    /// Blocks of requests that have ended, and the number of steps that end before the blocks
    /// return to the pool.
    held: VecDeque<(usize, Vec<BlockId>)>,
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
            held: VecDeque::new(),
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
        self.host = Some(Box::new(HostConnector::new(&mut self.manager, memory)?));
        Ok(())
    }

    /// Notes that the next calls are a request's.
    fn begin_call(&self, request: RequestId) {
        if let Some(callers) = &self.callers {
            callers.begin(request);
        }
    }

    /// Makes a call for a request, with the retention that it asks for.
    fn call<R>(&mut self, request: RequestId, call: impl FnOnce(&mut Manager) -> R) -> R {
        self.begin_call(request);
        self.manager.with_retention(self.retentions.get(&request), call)
    }

    /// Returns the retention of a request that is preempted.
    fn while_preempted(&self, request: RequestId) -> Arc<RequestRetention> {
        let retention = self.retentions.get(&request).map(|it| it.while_preempted());
        Arc::new(retention.unwrap_or_else(|| RequestRetention::default().while_preempted()))
    }

    /// Removes a request, and holds its blocks until `num_steps` steps have ended.
    fn hold_blocks(
        &mut self,
        request: RequestId,
        retention: Option<&Arc<RequestRetention>>,
        num_steps: usize,
    ) {
        self.begin_call(request);
        let pop = |manager: &mut Manager| manager.pop_blocks_for_free(request);
        if let Ok(mut blocks) = self.manager.with_retention(retention, pop) {
            blocks.reverse();
            self.held.push_back((num_steps, blocks));
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
        let new_blocks = self.call(request.id, |manager| manager.allocate_slots(request, &args))?;
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
        let num_local = hit.num_local();
        let is_any = |hit: &&PrefixHit| hit.blocks.iter().any(|blocks| !blocks.is_empty());
        let hit_blocks = hit.blocks.as_ref().filter(is_any);
        let args = AllocateArgs {
            num_new_computed_tokens: num_local,
            new_computed_blocks: hit_blocks.map_or(&[], |hit| &hit.blocks),
            num_external_computed_tokens: hit.num_loaded,
            fills_holes: true,
            delay_cache_blocks: true,
            full_sequence_must_fit: slots.whole_must_fit,
            reserved_blocks: num_reserved,
            has_scheduled_reqs: slots.has_running,
            ..AllocateArgs::default()
        };
        if self.call(request.id, |manager| manager.allocate_slots(request, &args))?.is_none() {
            return Ok(false);
        }
        if let Some(host) = &mut self.host {
            host.note_allocated(&self.manager, request.id);
            host.load(&self.manager, request, num_local, hit.num_loaded)?;
        }
        Ok(true)
    }

    fn end_load(&mut self, request: &RequestView<'_>) -> Result<(), kvoxide_core::Error> {
        let num_tokens = request.num_computed_tokens;
        self.call(request.id, |manager| manager.cache_blocks(request, num_tokens))
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
        let retention = self.retentions.remove(&request);
        let _ = self.manager.with_retention(retention.as_ref(), |manager| manager.free(request));
    }

    fn free_after(&mut self, request: RequestId, num_steps: usize) {
        let retention = self.retentions.remove(&request);
        self.hold_blocks(request, retention.as_ref(), num_steps);
    }

    fn steps_ended(&mut self, num_steps: usize) {
        while self.held.front().is_some_and(|&(end, _)| end <= num_steps)
            && let Some((_, blocks)) = self.held.pop_front()
        {
            let released = self.manager.release_blocks(&blocks);
            debug_assert!(released.is_ok(), "the blocks keep their references");
        }
    }

    fn has_held_blocks(&self) -> bool {
        !self.held.is_empty()
    }

    fn leave_windows(&mut self, request: &RequestView<'_>, num_computed_tokens: usize) {
        // A request that never got a block is unknown to the manager.
        let _ = self.call(request.id, |manager| {
            let num_prompt_tokens = Some(request.num_prompt_tokens);
            manager.remove_skipped_blocks(request.id, num_computed_tokens, num_prompt_tokens)
        });
    }

    fn preempt(&mut self, request: RequestId) {
        self.begin_call(request);
        let retention = Some(self.while_preempted(request));
        let _ = self.manager.with_retention(retention.as_ref(), |manager| manager.free(request));
    }

    fn preempt_after(&mut self, request: RequestId, num_steps: usize) {
        let retention = self.while_preempted(request);
        self.hold_blocks(request, Some(&retention), num_steps);
    }

    fn cache(&mut self, request: &RequestView<'_>, num_computed_tokens: usize) {
        // Missing blocks have no tokens to cache.
        let cache = |manager: &mut Manager| manager.cache_blocks(request, num_computed_tokens);
        let _ = self.call(request.id, cache);
    }

    fn reset(&mut self) -> bool {
        self.manager.reset_prefix_cache()
    }

    fn step_starts(&mut self) {
        self.manager.new_step_starts();
    }

    fn step_has_run(&mut self) -> Result<(), kvoxide_core::Error> {
        self.manager.end_simulated_step()
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
        let sees_every_step = self.host.as_ref().is_some_and(|host| host.sees_every_step());
        let steps = self.no_op_steps.as_ref().filter(|_| !sees_every_step);
        steps.map_or(num_computed_tokens, |steps| steps.next_call(num_computed_tokens))
    }
}
