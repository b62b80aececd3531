//! What a scheduler asks for blocks: the manager, or a cache that never evicts.

mod unlimited;

use std::collections::HashMap;

use kvoxide_core::{
    AllocateArgs, Manager, ManagerConfig, PrefixHit, RequestId, RequestView, RetentionPriority,
    RetentionReport,
};

use serde::{Deserialize, Serialize};

use crate::losses::{Ledger, Losses};
use crate::quiet::QuietSteps;
use crate::trace::Trace;
pub use unlimited::UnlimitedCache;

/// A cache as the scheduler uses it. Lengths in tokens.
pub trait Cache {
    /// A request arrives, at a time in microseconds, and may claim a priority for its blocks.
    fn arrives(
        &mut self,
        _request: RequestId,
        _arrival: Option<u64>,
        _claim: Option<RetentionPriority>,
    ) {
    }

    /// The longest cached prefix of a request and its shared-prefix boundary.
    fn look_up(&mut self, request: &RequestView<'_>) -> Result<Hit, kvoxide_core::Error>;

    /// Slots for `num_new_tokens` more tokens, after adopting a hit if one is given. `false` if
    /// they do not fit.
    fn allocate(
        &mut self,
        request: &RequestView<'_>,
        num_new_tokens: usize,
        hit: Option<&Hit>,
    ) -> Result<bool, kvoxide_core::Error>;

    /// Why a request that got its first slots with a hit did not hit more that was computed before.
    fn losses(&self, _request: &RequestView<'_>, _hit: &Hit) -> Losses {
        Losses::default()
    }

    /// A request got slots for its tokens from `start` to `end`.
    fn note_computed(&mut self, _request: &RequestView<'_>, _start: usize, _end: usize) {}

    /// Gives everything back that a request holds.
    fn free(&mut self, request: RequestId);

    /// A step starts.
    fn step_starts(&mut self) {}

    /// A step has run, and with it the copies that it ordered.
    fn step_has_run(&mut self) -> Result<(), kvoxide_core::Error> {
        Ok(())
    }

    /// How the pool is used now.
    fn occupancy(&self) -> Occupancy;

    /// What retention came to so far, in time proportional to the pool; `None` if there is none.
    fn retention(&self) -> Option<RetentionReport> {
        None
    }

    /// The length of what [`Self::look_up`] would find; nothing changes.
    fn cached_length(&self, request: &RequestView<'_>) -> Result<usize, kvoxide_core::Error>;

    /// The computed tokens of the next decode step from `num_computed_tokens` on that needs a call
    /// of [`Self::allocate`].
    fn next_call(&self, num_computed_tokens: usize) -> usize;
}

/// A hit of either cache.
#[derive(Clone, Debug)]
pub struct Hit {
    /// Its length.
    pub length: usize,
    /// Where a shared prefix ends that a sparse group has not kept; 0 for nowhere.
    pub shared_prefix_boundary: usize,
    /// How far the blocks of full attention are there.
    full_length: usize,
    blocks: Option<PrefixHit>,
}

/// How a pool is used, in blocks.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Occupancy {
    /// Blocks that can be used at all.
    pub capacity: usize,
    /// Blocks in use.
    pub used: usize,
    /// Blocks with a key.
    pub cached: usize,
    /// Blocks in the pinned tier.
    pub pinned: usize,
    /// Cached blocks that were evicted so far.
    pub evictions: u64,
}

/// The block manager, and why what was lost was lost.
#[derive(Debug)]
pub struct ManagedCache {
    manager: Manager,
    ledger: Option<Ledger>,
    quiet: Option<QuietSteps>,
    claims: HashMap<RequestId, RetentionPriority>,
}

impl ManagedCache {
    /// A manager of this configuration.
    pub fn new(config: ManagerConfig) -> Result<Self, kvoxide_core::Error> {
        let manager = Manager::new(config)?;
        let quiet = QuietSteps::of(&manager);
        Ok(Self { manager, ledger: None, quiet, claims: HashMap::new() })
    }

    /// Finds out from now on why tokens of this trace are lost, and what is evicted.
    pub fn explain(&mut self, trace: &Trace, tokens_per_id: usize) {
        self.manager.pool_mut().count_evictions_by_group();
        self.ledger = Some(Ledger::new(trace, tokens_per_id, &self.manager));
    }

    /// Tokens per block hash.
    pub fn hash_block_size(&self) -> usize {
        self.manager.hash_block_size()
    }

    /// The manager.
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// A cache for the same groups that never evicts.
    pub fn unlimited(&self, trace: &Trace, tokens_per_id: usize) -> UnlimitedCache {
        UnlimitedCache::new(trace, tokens_per_id, self.manager.scheduler_block_size())
    }
}

impl Cache for ManagedCache {
    fn arrives(
        &mut self,
        request: RequestId,
        arrival: Option<u64>,
        claim: Option<RetentionPriority>,
    ) {
        if let Some(claim) = claim {
            self.claims.insert(request, claim);
        }
        if let Some(arrival) =
            arrival.filter(|_| self.manager.has_times_to_live() || claim.is_some())
        {
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
        Ok(Hit {
            length: hit.length,
            shared_prefix_boundary: hit.shared_prefix_boundary,
            full_length,
            blocks: Some(hit),
        })
    }

    fn allocate(
        &mut self,
        request: &RequestView<'_>,
        num_new_tokens: usize,
        hit: Option<&Hit>,
    ) -> Result<bool, kvoxide_core::Error> {
        let adopted = hit.and_then(|hit| hit.blocks.as_ref());
        let args = AllocateArgs {
            num_new_tokens,
            num_new_computed_tokens: adopted.map_or(0, |hit| hit.length),
            new_computed_blocks: adopted
                .filter(|hit| hit.length > 0)
                .map_or(&[], |hit| &hit.blocks),
            full_sequence_must_fit: hit.is_some(),
            has_scheduled_reqs: true,
            ..AllocateArgs::default()
        };
        let claim = self.claims.get(&request.id);
        let allocate = |manager: &mut Manager| manager.allocate_slots(request, &args);
        Ok(self.manager.with_priority(claim, allocate)?.is_some())
    }

    fn losses(&self, request: &RequestView<'_>, hit: &Hit) -> Losses {
        let losses = |ledger: &Ledger| ledger.losses(request, hit.length, hit.full_length);
        self.ledger.as_ref().map(losses).unwrap_or_default()
    }

    fn note_computed(&mut self, request: &RequestView<'_>, start: usize, end: usize) {
        if let Some(ledger) = &mut self.ledger {
            ledger.note_computed(&self.manager, request, start, end);
        }
    }

    fn free(&mut self, request: RequestId) {
        // A request that never got a block holds nothing.
        let claim = self.claims.get(&request);
        let _ = self.manager.with_priority(claim, |manager| manager.free(request));
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

    fn cached_length(&self, request: &RequestView<'_>) -> Result<usize, kvoxide_core::Error> {
        Ok(self.manager.find_longest_hit(&request.hashes, request.num_tokens - 1)?.length)
    }

    fn next_call(&self, num_computed_tokens: usize) -> usize {
        let quiet = self.quiet.as_ref();
        quiet.map_or(num_computed_tokens, |quiet| quiet.next_call(num_computed_tokens))
    }
}
