//! Whether there are blocks for what a request asks for.

use super::Manager;
use super::adopt::takes_no_hit;
use super::args::AllocateArgs;
use crate::block::{BlockId, NULL_BLOCK};
use crate::error::Result;
use crate::group::{Asked, BlockDemand, Group, StepAhead};
use crate::pool::BlockPool;
use crate::request::{RequestBlocks, RequestId, RequestView};

impl Manager {
    /// Whether there are free blocks for a demand and `kept` more. Finding out how many blocks of a
    /// hit are free reads each of them, so the answer is sought first as if all were.
    pub(super) fn fits(
        &mut self,
        request: RequestId,
        demand: &BlockDemand<'_>,
        kept: usize,
        counted: &mut CountedHit,
    ) -> bool {
        let num_free_blocks = self.pool.num_free_blocks();
        let kept = isize::try_from(kept).unwrap_or(isize::MAX);
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
        let held = self.requests.get(&request).map_or(&[][..], |held| &held.groups);
        let mut groups = held.iter().zip(demand.new_computed_blocks);
        if groups.any(|(state, hit)| state.num_cached_blocks.is_some() && !hit.is_empty()) {
            return Err(takes_no_hit());
        }
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

    /// Checks that a request can be served as the demand says.
    pub(super) fn check_rows(
        &self,
        request: &RequestView<'_>,
        demand: &BlockDemand<'_>,
        args: &AllocateArgs<'_>,
        num_tokens_to_cache: Option<usize>,
        num_processed_tokens: usize,
    ) -> Result<()> {
        let held = self.requests.get(&request.id);
        let is_hybrid = self.groups.len() > 1;
        self.groups.iter().enumerate().try_for_each(|(i, group)| {
            let state = held.map(|held| &held.groups[i]);
            let asked = Asked { request: request.id, state, pool: &self.pool };
            let step = StepAhead {
                request,
                num_processed_tokens,
                adopts: args.adopts(),
                num_tokens_to_cache: num_tokens_to_cache
                    .filter(|_| group.is_cacheable)
                    .map(|tokens| self.plan.num_cacheable_tokens(group, is_hybrid, tokens)),
            };
            group.check_step(&asked, demand, &step)
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

    fn demand(
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
}

/// How many blocks of a hit are free, which one call asks up to twice.
#[derive(Default)]
pub(super) struct CountedHit {
    /// Group, number of blocks at the end of its hit, and how many of those are free.
    counts: Vec<(usize, usize, usize)>,
}

impl CountedHit {
    fn num_free(&mut self, group: usize, adopted: &[BlockId], pool: &BlockPool) -> usize {
        if adopted.is_empty() {
            return 0;
        }
        let known = self.counts.iter().find(|count| (count.0, count.1) == (group, adopted.len()));
        if let Some(&(_, _, num_free)) = known {
            return num_free;
        }
        let num_free = num_free(adopted, pool);
        self.counts.push((group, adopted.len(), num_free));
        num_free
    }
}

fn num_free(adopted: &[BlockId], pool: &BlockPool) -> usize {
    let is_free = |&&block: &&BlockId| block != NULL_BLOCK && pool.is_free(block);
    adopted.iter().filter(is_free).count()
}
