//! Makes a scheduler's calls of a manager, and checks the manager's state after each call.

use std::sync::Arc;

use kvoxide_core::{
    AllocateArgs, BlockId, Manager, PrefixHit, Result, RetentionPriority, SlotDemand, check, digest,
};
use twox_hash::xxhash3_128;

use super::call::{Allocation, Amount, Call};
use super::request::Request;

const NUM_REQUESTS: usize = 6;

/// A manager, the requests that it serves, and blocks that no request holds.
pub struct Traffic {
    manager: Manager,
    requests: Vec<Request>,
    kept: Vec<BlockId>,
    /// The time in milliseconds.
    now: u64,
    /// The result of the last call that returned numbers.
    answer: (isize, usize),
}

impl Traffic {
    /// Returns traffic that starts with one short request per id.
    pub fn new(manager: Manager) -> Self {
        let size = manager.hash_block_size();
        let request = |id: usize| Request::new(id as u64 + 1, id as u8, 90, 60, size);
        Self {
            requests: (0..NUM_REQUESTS).map(request).collect(),
            manager,
            kept: Vec::new(),
            now: 0,
            answer: (0, 0),
        }
    }

    /// Makes one call and checks its effect.
    pub fn make(&mut self, call: &Call) {
        let before = digest(&self.manager);
        if self.apply(call).is_err() {
            assert_eq!(digest(&self.manager), before, "refused, but not without effect: {call:?}");
        }
        if let Err(broken) = check(&self.manager) {
            panic!("after {call:?}: {broken}");
        }
    }

    /// Makes one call and returns a hash of its results and of the state after it.
    pub fn decide(&mut self, call: &Call) -> u64 {
        let is_done = self.apply(call).is_ok();
        let events = self.manager.take_events();
        let listed = self.manager.take_new_block_ids();
        let (answer, left) = (self.answer, digest(&self.manager));
        let outcome = format!("{is_done} {answer:?} {events:?} {listed:?} {left:?}");
        xxhash3_128::Hasher::oneshot(outcome.as_bytes()) as u64
    }

    /// Returns the number of tokens that groups of cross attention attend to.
    fn num_encoder_tokens(&self) -> usize {
        let mut groups = self.manager.config().groups.iter();
        if groups.any(|group| group.kind == "cross_attention") { 40 } else { 0 }
    }

    /// Frees all requests, releases all kept blocks and checks that the pool is free.
    pub fn end(mut self) {
        self.take_copies().expect("copies that are due");
        for request in &self.requests {
            if self.manager.knows(request.id) {
                self.manager.free(request.id).expect("a request that is known");
            }
        }
        self.manager.release_blocks(&self.kept).expect("blocks with a reference");
        assert_eq!(check(&self.manager), Ok(()));
        let pool = self.manager.pool();
        assert_eq!(pool.num_free_blocks(), pool.num_blocks() as isize - 1);
        assert_eq!(pool.usage(), 0.0);
        assert!(self.manager.reset_prefix_cache());
        assert_eq!(check(&self.manager), Ok(()));
    }

    fn apply(&mut self, call: &Call) -> Result<()> {
        match *call {
            Call::Step { which, tokens, lookahead, delay } => {
                self.step(index(which), usize::from(tokens), usize::from(lookahead), delay)
            }
            Call::Replace { which, family, len, shared, num_prompt_tokens } => {
                self.replace(index(which), family, len, shared, num_prompt_tokens)
            }
            Call::Append { which, tokens } => self.append(index(which), usize::from(tokens)),
            Call::Count { which, computed, in_flight, boundary } => {
                self.count(index(which), computed, in_flight, boundary)
            }
            Call::LookUp { which, max_length } => {
                let fitting = self.requests[index(which)].tokens.len() - 1;
                self.look_up(index(which), max_length.tokens(fitting)).map(|_| ())
            }
            Call::Allocate(ref allocation) => self.allocate(allocation),
            Call::Truncate { which, tokens } => {
                let hit = self.look_up(index(which), usize::MAX)?;
                self.manager.truncated(&hit.blocks, tokens.tokens(hit.length / 2)).map(|_| ())
            }
            Call::Demand { which, tokens, computed, cap, with_hit } => {
                self.demand(index(which), tokens, computed, cap, with_hit)
            }
            Call::CacheBlocks { which, computed } => self.cache_blocks(index(which), computed),
            Call::Free { which } => self.free(index(which)),
            Call::Pop { which } => self.pop(index(which)),
            Call::Release { blocks, to_back } => self.release(usize::from(blocks), to_back),
            Call::ReleaseAny { ref blocks } => self.release_any(blocks),
            Call::Take { blocks } => self.take(blocks.tokens(1)),
            Call::Touch { ref blocks } => self.touch(blocks),
            Call::Skip { which, computed } => self.skip(index(which), computed),
            Call::Evict { ref blocks } => self.manager.evict_blocks(&self.ids(blocks)),
            Call::Reset => self.reset(),
            Call::Zero { which, start } => self.zero(index(which), start),
            Call::Read { which } => self.read(index(which)),
            Call::StartStep => {
                self.manager.new_step_starts();
                Ok(())
            }
            Call::TakeCopies => self.take_copies(),
            Call::TakeOffloads { which } => self.take_offloads(index(which)),
            Call::SetPriority { which, priority, tenths } => {
                self.set_priority(index(which), priority, tenths)
            }
            Call::Wait { milliseconds } => {
                self.now += u64::from(milliseconds);
                self.manager.set_now(self.now);
                Ok(())
            }
        }
    }

    /// Serves a request for one step.
    fn step(&mut self, i: usize, tokens: usize, lookahead: usize, delay: bool) -> Result<()> {
        let is_new = !self.manager.knows(self.requests[i].id);
        if is_new {
            self.preempt(i);
        }
        let hit = match is_new {
            true => self.look_up(i, self.requests[i].tokens.len() - 1)?,
            false => no_hit(),
        };
        let num_encoder_tokens = if is_new { self.num_encoder_tokens() } else { 0 };
        let request = &mut self.requests[i];
        request.boundary = hit.shared_prefix_boundary.max(request.boundary);
        let left = request.tokens.len().saturating_sub(request.num_computed_tokens + hit.length);
        let num_new_tokens = left.min(1 + tokens);
        let args = AllocateArgs {
            num_new_tokens,
            num_new_computed_tokens: hit.length,
            new_computed_blocks: &hit.blocks,
            num_lookahead_tokens: lookahead % 4,
            num_encoder_tokens,
            delay_cache_blocks: delay,
            has_scheduled_reqs: true,
            ..AllocateArgs::default()
        };
        let retention = request.retention.clone();
        let allocate = |manager: &mut Manager| manager.allocate_slots(&request.view(), &args);
        if self.manager.with_retention(retention.as_ref(), allocate)?.is_some() {
            request.num_computed_tokens += hit.length + num_new_tokens;
            request.is_waiting = false;
        }
        Ok(())
    }

    fn replace(
        &mut self,
        i: usize,
        family: u8,
        len: u16,
        shared: u16,
        num_prompt_tokens: Amount,
    ) -> Result<()> {
        let id = self.requests[i].id;
        if self.manager.knows(id) {
            self.manager.free(id)?;
        }
        let request = Request::new(id, family, len, shared, self.manager.hash_block_size());
        let num_prompt_tokens = num_prompt_tokens.tokens(request.tokens.len());
        self.requests[i] = Request { num_prompt_tokens, ..request };
        Ok(())
    }

    fn append(&mut self, i: usize, n: usize) -> Result<()> {
        self.requests[i].append(n, self.manager.hash_block_size());
        Ok(())
    }

    fn count(
        &mut self,
        i: usize,
        computed: Amount,
        in_flight: Amount,
        boundary: Amount,
    ) -> Result<()> {
        let request = &mut self.requests[i];
        request.num_computed_tokens = computed.tokens(request.num_computed_tokens);
        request.num_in_flight_tokens = in_flight.tokens(0);
        request.boundary = boundary.tokens(request.boundary);
        Ok(())
    }

    fn computed_tokens(&self, i: usize, amount: Amount) -> usize {
        amount.tokens(self.requests[i].num_computed_tokens)
    }

    fn preempt(&mut self, i: usize) {
        self.requests[i].num_computed_tokens = 0;
        self.requests[i].num_in_flight_tokens = 0;
        self.requests[i].boundary = 0;
        self.requests[i].is_waiting = true;
    }

    /// Looks up a request and checks that the memo does not change its hit.
    fn look_up(&mut self, i: usize, max_length: usize) -> Result<PrefixHit> {
        let view = self.requests[i].view();
        // The look-up reads every hash of a window that is not known to be a chain.
        let unlinked = view.hashes.chained(false);
        let afresh = self.manager.find_longest_hit(&unlinked, max_length);
        let linked = self.manager.find_longest_hit(&view.hashes, max_length);
        assert_eq!(linked, afresh);
        let found = self.manager.get_computed_blocks(view.id, &view.hashes, max_length);
        assert_eq!(afresh.is_err(), found.is_err());
        let (afresh, found) = (afresh?, found?);
        assert_eq!((afresh.length, &afresh.blocks), (found.length, &found.blocks));
        assert_eq!(afresh.shared_prefix_boundary, found.shared_prefix_boundary);
        assert!(found.length <= max_length);
        let alignment = match self.manager.groups().len() {
            1 => self.manager.hash_block_size(),
            _ if self.manager.has_partial_hits() => self.manager.hash_block_size(),
            _ => self.manager.scheduler_block_size(),
        };
        assert!(found.length.is_multiple_of(alignment));
        self.answer = (found.length as isize, found.shared_prefix_boundary);
        Ok(found)
    }

    fn allocate(&mut self, allocation: &Allocation) -> Result<()> {
        let Allocation {
            which,
            with_hit,
            new,
            hit: hit_tokens,
            lookahead,
            external,
            reserved,
            switches: [delay_cache_blocks, full_sequence_must_fit, has_scheduled_reqs, is_waiting],
            skip_zeroing,
        } = *allocation;
        let i = index(which);
        let max_length = self.requests[i].tokens.len() - 1;
        let hit = if with_hit { self.look_up(i, max_length)? } else { no_hit() };
        let num_encoder_tokens = self.num_encoder_tokens();
        let request = &mut self.requests[i];
        request.is_waiting = is_waiting;
        let left = request.tokens.len().saturating_sub(hit.length);
        let skip_zeroing_group_ids: Vec<_> = skip_zeroing.into_iter().map(usize::from).collect();
        let args = AllocateArgs {
            num_new_tokens: new.tokens(left.min(16)),
            num_new_computed_tokens: hit_tokens.tokens(hit.length),
            new_computed_blocks: &hit.blocks,
            num_lookahead_tokens: lookahead.tokens(0),
            num_external_computed_tokens: external.tokens(0),
            num_encoder_tokens,
            delay_cache_blocks,
            full_sequence_must_fit,
            reserved_blocks: reserved.tokens(0) as isize,
            has_scheduled_reqs,
            skip_zeroing_group_ids: &skip_zeroing_group_ids,
            ..AllocateArgs::default()
        };
        let retention = request.retention.clone();
        let allocate = |manager: &mut Manager| manager.allocate_slots(&request.view(), &args);
        self.manager.with_retention(retention.as_ref(), allocate).map(|_| ())
    }

    fn demand(
        &mut self,
        i: usize,
        tokens: Amount,
        computed: Amount,
        apply_admission_cap: bool,
        with_hit: bool,
    ) -> Result<()> {
        let hit = if with_hit { self.look_up(i, usize::MAX)? } else { no_hit() };
        let request = &self.requests[i];
        let demand = SlotDemand {
            num_tokens: tokens.tokens(request.tokens.len()),
            new_computed_blocks: &hit.blocks,
            total_computed_tokens: self.computed_tokens(i, computed),
            num_local_computed_tokens: request.num_computed_tokens.saturating_add(hit.length),
            num_tokens_main_model: tokens.tokens(request.tokens.len()),
            num_encoder_tokens: self.num_encoder_tokens(),
            prefill_end: request.num_prompt_tokens,
            apply_admission_cap,
            ..SlotDemand::default()
        };
        self.answer = (self.manager.get_num_blocks_to_allocate(request.id, &demand)?, 0);
        Ok(())
    }

    fn cache_blocks(&mut self, i: usize, computed: Amount) -> Result<()> {
        let computed = self.computed_tokens(i, computed);
        let request = &self.requests[i];
        let cache = |manager: &mut Manager| manager.cache_blocks(&request.view(), computed);
        self.manager.with_retention(request.retention.as_ref(), cache)
    }

    fn free(&mut self, i: usize) -> Result<()> {
        let Request { id, ref retention, .. } = self.requests[i];
        self.manager.with_retention(retention.as_ref(), |manager| manager.free(id))?;
        self.preempt(i);
        Ok(())
    }

    fn pop(&mut self, i: usize) -> Result<()> {
        let Request { id, ref retention, .. } = self.requests[i];
        let pop = |manager: &mut Manager| manager.pop_blocks_for_free(id);
        let blocks = self.manager.with_retention(retention.as_ref(), pop)?;
        self.kept.extend(blocks.into_iter().filter(|&block| block != 0));
        self.preempt(i);
        Ok(())
    }

    fn release(&mut self, n: usize, to_back: bool) -> Result<()> {
        let blocks = self.kept.split_off(self.kept.len().saturating_sub(n));
        match to_back {
            true => self.manager.release_blocks_to_back(&blocks),
            false => self.manager.release_blocks(&blocks),
        }
    }

    /// Releases blocks that have no reference. The manager must refuse this.
    fn release_any(&mut self, blocks: &[u16]) -> Result<()> {
        let ids = self.ids(blocks);
        let states = self.manager.pool().blocks();
        let num_blocks = self.manager.pool().num_blocks();
        let is_held = |&id: &BlockId| (id as usize) < num_blocks && states.ref_count(id) > 0;
        if ids.iter().any(is_held) {
            return Ok(());
        }
        self.manager.release_blocks(&ids)
    }

    fn take(&mut self, n: usize) -> Result<()> {
        self.manager.pool().check_free(n)?;
        self.manager.pool_mut().allocate(n, &mut self.kept);
        Ok(())
    }

    fn touch(&mut self, blocks: &[u16]) -> Result<()> {
        let ids = self.ids(blocks);
        self.manager.check_ids(&ids)?;
        // A block that a request still writes to cannot be shared.
        let can_share = |&id: &BlockId| id != 0 && self.manager.pool().blocks().is_cached(id);
        let ids: Vec<BlockId> = ids.into_iter().filter(can_share).collect();
        self.manager.pool_mut().touch(&ids);
        self.kept.extend(ids);
        Ok(())
    }

    fn skip(&mut self, i: usize, computed: Amount) -> Result<()> {
        let computed = self.computed_tokens(i, computed);
        let Request { id, num_prompt_tokens, ref retention, .. } = self.requests[i];
        self.manager.with_retention(retention.as_ref(), |manager| {
            manager.remove_skipped_blocks(id, computed, Some(num_prompt_tokens))
        })
    }

    fn set_priority(&mut self, i: usize, priority: u8, tenths: u8) -> Result<()> {
        let seconds = Some(f64::from(tenths) / 10.0).filter(|&seconds| seconds > 0.0);
        let priority = RetentionPriority::new(i64::from(priority % 102), seconds)?;
        self.requests[i].retention = Some(Arc::new(priority.into()));
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        let is_done = self.manager.reset_prefix_cache();
        assert!(!is_done || self.manager.pool().index().num_cached() == 0);
        Ok(())
    }

    fn zero(&mut self, i: usize, start: Amount) -> Result<()> {
        self.manager.record_blocks_for_zeroing(self.requests[i].id, start.tokens(0))?;
        let num_blocks = self.manager.pool().num_blocks();
        let listed = self.manager.take_new_block_ids();
        assert!(listed.iter().all(|&block| (block as usize) < num_blocks));
        Ok(())
    }

    fn take_copies(&mut self) -> Result<()> {
        let copies = self.manager.take_block_copies();
        self.kept.extend(copies.into_iter().flat_map(|(from, to)| [from, to]));
        Ok(())
    }

    /// Takes the blocks that a connector can read and checks that they are in the pool.
    fn take_offloads(&mut self, i: usize) -> Result<()> {
        let num_blocks = self.manager.pool().num_blocks();
        let tails = self.manager.finalize_partial_tails(&self.requests[i].view());
        let offers = self.manager.take_offloads();
        let mut blocks = tails.iter().chain(&offers).map(|offload| offload.block as usize);
        assert!(blocks.all(|block| (1..num_blocks).contains(&block)));
        Ok(())
    }

    fn read(&mut self, i: usize) -> Result<()> {
        self.manager.estimate_cached_tokens(self.requests[i].id)?;
        self.manager.take_events();
        self.manager.pool_mut().take_observations();
        Ok(())
    }

    /// Returns block ids of the pool, and sometimes the first id outside of it.
    fn ids(&self, blocks: &[u16]) -> Vec<BlockId> {
        let len = self.manager.pool().num_blocks() as u32 + 1;
        blocks.iter().take(8).map(|&block| u32::from(block) % len).collect()
    }
}

fn index(which: u8) -> usize {
    usize::from(which) % NUM_REQUESTS
}

fn no_hit() -> PrefixHit {
    PrefixHit { blocks: Vec::new().into(), length: 0, shared_prefix_boundary: 0 }
}
