//! Whether there are blocks for what a request asks for.

use super::Manager;
use super::room::{CountedHit, Room, num_free};
use crate::block::BlockId;
use crate::error::{Error, Result};
use crate::group::{Asked, BlockDemand, Group, StepAhead};
use crate::pool::BlockPool;
use crate::request::{RequestBlocks, RequestId};

/// The most tokens that a question may be about: numbers of blocks have a sign, and are added up.
const MAX_TOKENS: usize = usize::MAX / 4;

impl Manager {
    /// Whether there are free blocks for a demand and `kept` more. Finding out how many blocks of a
    /// hit are free reads each of them, so the answer is sought first as if all were.
    pub(super) fn fits(
        &mut self,
        request: RequestId,
        demand: &BlockDemand<'_>,
        kept: isize,
        counted: &mut CountedHit,
    ) -> bool {
        let num_free_blocks = self.pool.num_free_blocks();
        let fits = |demand: isize| demand.saturating_add(kept) <= num_free_blocks;
        fits(self.demand(request, demand, |_, _, adopted| adopted.len()))
            || fits(self.demand(request, demand, |pool, group, adopted| {
                counted.num_free(group, adopted, pool)
            }))
    }

    /// Blocks that leave the free ones when a request is given what it asks for: new blocks, and
    /// free blocks of the hit. Below zero where a table is longer than the request needs.
    pub fn get_num_blocks_to_allocate(
        &mut self,
        request: RequestId,
        demand: &BlockDemand<'_>,
    ) -> Result<isize> {
        check_counts(demand)?;
        self.check_running_hit(request, demand.new_computed_blocks)?;
        let demanded = self.demand(request, demand, |pool, _, adopted| num_free(adopted, pool));
        self.forget_unless_held(request);
        Ok(demanded)
    }

    /// Forgets what the groups learned of a request that got nothing.
    pub(super) fn forget_unless_held(&mut self, request: RequestId) {
        if self.plan.has_own_joints && !self.knows(request) {
            self.groups.iter_mut().for_each(|group| group.end(request, &mut self.orders));
        }
    }

    /// Checks that a request can be served as the demand says. Whether some row asks for less than
    /// nothing, which hides as many blocks that others take.
    pub(super) fn check_rows(
        &self,
        room: &Room<'_>,
        num_tokens_to_cache: Option<usize>,
    ) -> Result<bool> {
        let Room { request, args, step: demand, .. } = room;
        let held = self.requests.get(&request.id);
        let is_hybrid = self.groups.len() > 1;
        self.groups.iter().enumerate().try_fold(false, |hides, (i, group)| {
            let state = held.map(|held| &held.groups[i]);
            let asked = Asked { request: request.id, state, pool: &self.pool };
            let step = StepAhead {
                request,
                num_processed_tokens: room.num_processed(),
                adopts: args.adopts(),
                num_tokens_to_cache: num_tokens_to_cache
                    .filter(|_| group.is_cacheable)
                    .map(|tokens| self.plan.num_cacheable_tokens(group, is_hybrid, tokens)),
            };
            Ok(group.check_step(&asked, demand, &step)? || hides)
        })
    }

    /// Checks that there is room for what a connector's tokens take beyond a demand, which counts
    /// a state for the end of the step alone.
    pub(super) fn check_external(
        &mut self,
        request: RequestId,
        demand: &BlockDemand<'_>,
    ) -> Result<()> {
        let held = self.requests.get(&request);
        let is_running = held.is_some_and(RequestBlocks::is_running);
        let beyond = match self.plan.has_own_joints && !is_running {
            true => self.num_blocks_beyond_demand(request, demand),
            false => 0,
        };
        if beyond <= 0 {
            return Ok(());
        }
        let demanded = self.demand(request, demand, |pool, _, adopted| num_free(adopted, pool));
        self.pool.check_free((demanded + beyond).max(0) as usize)
    }

    fn num_blocks_beyond_demand(&self, request: RequestId, demand: &BlockDemand<'_>) -> isize {
        let held = self.requests.get(&request);
        let beyond = |(i, group): (usize, &Group)| {
            let state = held.map(|held| &held.groups[i]);
            group.num_blocks_beyond_demand(&Asked { request, state, pool: &self.pool }, demand)
        };
        self.groups.iter().enumerate().map(beyond).sum()
    }

    pub(super) fn demand(
        &mut self,
        request: RequestId,
        demand: &BlockDemand<'_>,
        mut num_free: impl FnMut(&BlockPool, usize, &[BlockId]) -> usize,
    ) -> isize {
        let held = self.requests.get(&request);
        let pool = &self.pool;
        let demands = self.groups.iter_mut().enumerate().map(|(i, group)| {
            let state = held.map(|held| &held.groups[i]);
            let demand = group.demand(&Asked { request, state, pool }, demand);
            demand.new + num_free(pool, i, demand.adopted) as isize
        });
        demands.fold(0, isize::saturating_add)
    }

    /// Blocks that leave the free ones when a request is given what a question is about: a demand
    /// below zero gives none.
    #[cold]
    pub(super) fn num_taken(&mut self, request: RequestId, question: &BlockDemand<'_>) -> isize {
        let held = self.requests.get(&request);
        let pool = &self.pool;
        let demands = self.groups.iter_mut().enumerate().map(|(i, group)| {
            let state = held.map(|held| &held.groups[i]);
            let demand = group.demand(&Asked { request, state, pool }, question);
            demand.new.max(0).saturating_add(num_free(demand.adopted, pool) as isize)
        });
        demands.fold(0, isize::saturating_add)
    }
}

/// Checks that the blocks for so many tokens can be counted.
fn check_counts(demand: &BlockDemand<'_>) -> Result<()> {
    let counts = [demand.num_tokens, demand.num_tokens_main_model, demand.num_encoder_tokens];
    match counts.into_iter().find(|&tokens| tokens > MAX_TOKENS) {
        None => Ok(()),
        Some(tokens) => Err(Error::Request(format!(
            "blocks for {tokens} tokens are asked for; at most {MAX_TOKENS} can be counted"
        ))),
    }
}
