//! The KV cache manager of a scheduler.
//!
//! A request's way through it: [`Manager::get_computed_blocks`] looks its longest cached prefix
//! up; [`Manager::allocate_slots`] admits it with that hit and then serves each step, giving back
//! blocks that left a window, taking new ones and caching those that became full;
//! [`Manager::free`] gives everything back. Decisions are those of vLLM 0.33.0.

use std::mem;

use crate::block::{BlockHash, BlockId};
use crate::config::{ManagerConfig, Plan};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::hit_search::{HitSearch, SearchResult};
use crate::pool::BlockPool;
use crate::request::{GroupBlocks, RequestBlocks, RequestId, RequestView};
use crate::spec::GroupSpec;

mod allocate;
mod cache;
mod release;

pub use allocate::{AllocateArgs, BlockDemand};

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
}

/// A prefix found in the cache.
#[derive(Clone, Debug)]
pub struct PrefixHit {
    /// The blocks of each group; null where a group does not need them.
    pub blocks: Vec<GroupBlocks>,
    /// Tokens of the hit.
    pub length: usize,
    /// Where a shared prefix ends that a sparse group has not kept; 0 for nowhere.
    pub shared_prefix_boundary: usize,
}

impl Manager {
    /// A manager, or what is wrong with its configuration.
    pub fn new(config: ManagerConfig) -> Result<Self> {
        let plan = Plan::new(&config)?;
        let max_in_flight = config.max_in_flight_tokens.unwrap_or(config.max_model_len);
        let cap = |group: usize| {
            plan.kinds[group].max_admission_blocks(max_in_flight, config.max_model_len)
        };
        let mut pool = BlockPool::new(config.num_blocks, &config.policy, config.enable_events)?;
        if config.observe {
            pool.observe();
        }
        Ok(Self {
            max_admission_blocks: (0..config.groups.len()).map(cap).collect(),
            new_block_ids: vec![Vec::new(); config.groups.len()],
            pool,
            requests: RequestMap::default(),
            plan,
            config,
        })
    }

    /// The longest cached prefix of a request, at most `max_length` tokens long.
    pub fn get_computed_blocks(
        &mut self,
        request: &RequestView<'_>,
        max_length: usize,
    ) -> Result<PrefixHit> {
        let found = self.find_longest_hit(request.block_hashes, max_length)?;
        let boundary = match found.num_uncached_common_prefix_tokens {
            0 => 0,
            uncached => found.length + uncached,
        };
        Ok(PrefixHit {
            blocks: found.blocks,
            length: found.length,
            shared_prefix_boundary: boundary,
        })
    }

    /// The longest prefix of a chain of hashes that every group can continue from.
    pub fn find_longest_hit(
        &self,
        hashes: &[BlockHash],
        max_length: usize,
    ) -> Result<SearchResult> {
        let search = self.hit_search(hashes);
        match self.plan.lookup_groups.is_empty() {
            true => Ok(SearchResult {
                blocks: self.no_blocks(),
                length: 0,
                num_uncached_common_prefix_tokens: 0,
            }),
            false if self.is_hybrid() => search.fixed_point(max_length),
            false => search.unitary(max_length),
        }
    }

    /// The longest prefix that each group by itself can continue from: blocks and lengths.
    pub fn find_longest_hit_per_group(
        &self,
        hashes: &[BlockHash],
        max_length: usize,
    ) -> Result<(Vec<GroupBlocks>, Vec<usize>)> {
        self.hit_search(hashes).per_group(max_length)
    }

    fn hit_search<'a>(&'a self, hashes: &'a [BlockHash]) -> HitSearch<'a> {
        HitSearch {
            pool: &self.pool,
            kinds: &self.plan.kinds,
            lookup_groups: &self.plan.lookup_groups,
            hashes,
            hash_block_size: self.plan.hash_block_size,
            alignment: self.plan.hit_alignment,
        }
    }

    /// Reports the blocks of a hit as if they had been stored, for observers that keep no state.
    pub fn report_hit(&mut self, request: &RequestView<'_>, hit: &PrefixHit) -> Result<()> {
        if hit.length == 0 || !self.pool.has_events() {
            return Ok(());
        }
        let reported = || hit.blocks.iter().enumerate().filter(|(_, b)| !b.is_empty());
        for (group, blocks) in reported() {
            self.cache_target(request, group, blocks).require_hashes(blocks.len())?;
        }
        for (group, blocks) in reported() {
            let target = self.cache_target(request, group, blocks);
            target.report_cached_blocks(&mut self.pool, blocks.len());
        }
        Ok(())
    }

    /// The blocks of a request, per group.
    pub fn blocks_of(&self, request: RequestId) -> Result<&RequestBlocks> {
        self.requests.get(&request).ok_or_else(|| unknown(request))
    }

    /// Whether the manager holds anything for a request.
    pub fn knows(&self, request: RequestId) -> bool {
        self.requests.contains_key(&request)
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
