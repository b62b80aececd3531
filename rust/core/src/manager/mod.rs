//! The KV cache manager of a scheduler.
//!
//! A request's way through it: [`Manager::get_computed_blocks`] looks its longest cached prefix
//! up; [`Manager::allocate_slots`] admits it with that hit and then serves each step, giving back
//! blocks that left a window, taking new ones and caching those that became full;
//! [`Manager::free`] gives everything back. Decisions are those of vLLM 0.33.0.

use std::mem;

use crate::block::BlockId;
use crate::config::{ManagerConfig, Plan};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::lookup_memo::LookupMemos;
use crate::pool::BlockPool;
use crate::request::{GroupBlocks, RequestBlocks, RequestId};
use crate::spec::GroupSpec;

mod allocate;
mod cache;
mod lookup;
mod release;

pub use allocate::{AllocateArgs, BlockDemand};
pub use lookup::PrefixHit;

type RequestMap = hashbrown::HashMap<RequestId, RequestBlocks, foldhash::fast::FixedState>;

/// The manager. One owner has all of its state.
#[derive(Debug)]
pub struct Manager {
    pub(crate) config: ManagerConfig,
    pub(crate) plan: Plan,
    pub(crate) pool: BlockPool,
    pub(crate) requests: RequestMap,
    max_admission_blocks: Vec<Option<usize>>,
    pub(crate) new_block_ids: Vec<Vec<BlockId>>,
    memos: LookupMemos,
}

impl Manager {
    /// A manager, or what is wrong with its configuration.
    pub fn new(config: ManagerConfig) -> Result<Self> {
        let plan = Plan::new(&config)?;
        let max_in_flight = config.max_in_flight_tokens.unwrap_or(config.max_model_len);
        let cap = |group: usize| {
            plan.kinds[group].max_admission_blocks(max_in_flight, config.max_model_len)
        };
        let ManagerConfig { num_blocks, ref groups, ref policy, enable_events, .. } = config;
        let mut pool = BlockPool::new(num_blocks, groups.len(), policy, enable_events)?;
        if config.observe {
            pool.observe();
        }
        Ok(Self {
            max_admission_blocks: (0..config.groups.len()).map(cap).collect(),
            new_block_ids: vec![Vec::new(); config.groups.len()],
            pool,
            requests: RequestMap::default(),
            memos: LookupMemos::default(),
            plan,
            config,
        })
    }

    /// The blocks of a request, per group.
    pub fn blocks_of(&self, request: RequestId) -> Result<&RequestBlocks> {
        self.requests.get(&request).ok_or_else(|| unknown(request))
    }

    /// Whether the manager holds anything for a request.
    pub fn knows(&self, request: RequestId) -> bool {
        self.requests.contains_key(&request)
    }

    /// How many requests hold blocks.
    pub fn num_requests(&self) -> usize {
        self.requests.len()
    }

    /// Prefix tokens of a request that every cacheable group has cached.
    pub fn estimate_cached_tokens(&self, request: RequestId) -> Result<usize> {
        let held = self.blocks_of(request)?;
        let cached = |blocks: &GroupBlocks| {
            let states = self.pool.states();
            blocks.iter_held_back().find_map(|block| states.hash_num_tokens(block)).unwrap_or(0)
        };
        let groups = self.config.groups.iter().zip(&held.groups);
        let cacheable = groups.filter(|(spec, _)| spec.prefix_cacheable);
        Ok(cacheable.map(|(_, state)| cached(&state.blocks)).min().unwrap_or(0))
    }

    /// Block ids taken since the last call, for zeroing: group by group.
    pub fn take_new_block_ids(&mut self) -> Vec<BlockId> {
        self.new_block_ids.iter_mut().flat_map(mem::take).collect()
    }

    /// Lists a request's blocks from `start_token` on for zeroing once more.
    pub fn record_blocks_for_zeroing(
        &mut self,
        request: RequestId,
        start_token: usize,
    ) -> Result<()> {
        if !self.config.needs_zeroing {
            return Ok(());
        }
        if let Some(group) =
            self.config.groups.iter().find(|g| !start_token.is_multiple_of(g.block_size))
        {
            return Err(Error::Precondition(format!(
                "start_token is {start_token}, inside a block of {} tokens, whose beginning would \
                 be wiped; give a multiple of every block size",
                group.block_size
            )));
        }
        let held = self.requests.get(&request).ok_or_else(|| unknown(request))?;
        for (group, state) in held.groups.iter().enumerate() {
            let start = start_token / self.config.groups[group].block_size;
            self.new_block_ids[group].extend(state.blocks.iter().skip(start));
        }
        Ok(())
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.pool.take_events()
    }

    /// The block pool.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// The block pool, to take and release blocks outside any request.
    pub fn pool_mut(&mut self) -> &mut BlockPool {
        &mut self.pool
    }

    /// The configuration.
    pub fn config(&self) -> &ManagerConfig {
        &self.config
    }

    /// Hits of hybrid models are multiples of this many tokens.
    pub fn scheduler_block_size(&self) -> usize {
        self.plan.scheduler_block_size
    }

    /// Tokens per block hash.
    pub fn hash_block_size(&self) -> usize {
        self.plan.hash_block_size
    }

    /// Blocks kept free when a waiting request is admitted beside running ones.
    pub fn watermark_blocks(&self) -> usize {
        self.plan.watermark_blocks
    }

    /// A hit cut to `num_computed_tokens`, a multiple of every block size.
    pub fn truncated(
        &self,
        hit: &[GroupBlocks],
        num_computed_tokens: usize,
    ) -> Result<Vec<GroupBlocks>> {
        if hit.len() != self.config.groups.len() {
            return Err(Error::Request(format!(
                "a hit of {} groups cannot be cut; this manager has {}",
                hit.len(),
                self.config.groups.len()
            )));
        }
        let cut = |(spec, blocks): (&GroupSpec, &GroupBlocks)| {
            let mut blocks = blocks.clone();
            let is_aligned = num_computed_tokens.is_multiple_of(spec.block_size);
            let len = match spec.prefix_cacheable {
                true if is_aligned => Some(num_computed_tokens / spec.block_size),
                true => None,
                false => Some(0).filter(|_| blocks.is_empty()),
            };
            let Some(len) = len.filter(|&len| len <= blocks.len()) else {
                return Err(Error::Precondition(format!(
                    "a hit of {} blocks of {} tokens cannot be cut to {num_computed_tokens} \
                     tokens; give a multiple of the block size within the hit",
                    blocks.len(),
                    spec.block_size
                )));
            };
            blocks.truncate(len);
            Ok(blocks)
        };
        self.config.groups.iter().zip(hit).map(cut).collect()
    }

    /// A list without blocks for every group.
    pub fn no_blocks(&self) -> Vec<GroupBlocks> {
        vec![GroupBlocks::default(); self.config.groups.len()]
    }

    fn is_hybrid(&self) -> bool {
        self.config.enable_caching && self.config.groups.len() > 1
    }
}

fn unknown(request: RequestId) -> Error {
    Error::UnknownRequest(request.to_string())
}
