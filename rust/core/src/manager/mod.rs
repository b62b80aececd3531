//! The KV cache manager of a scheduler.
//!
//! A request's way through it: [`Manager::get_computed_blocks`] looks its longest cached prefix
//! up; [`Manager::allocate_slots`] admits it with that hit and then serves each step, giving back
//! blocks that left a window, taking new ones and caching those that became full;
//! [`Manager::free`] gives everything back. Decisions are those of vLLM 0.33.0.

mod adopt;
mod allocate;
mod args;
mod cache;
mod claim;
mod config;
mod demand;
mod lookup;
mod orders;
mod parting;

mod plan;
mod policy;
mod release;
mod report;
mod request_turn;
mod resumes;
mod room;
mod written;

pub use args::AllocateArgs;
pub use config::ManagerConfig;
pub use policy::{Policy, ProtectedShare, Retention};
pub use report::{Admitted, ByKind, RetentionReport};

use plan::Plan;
use written::Written;

use crate::error::{Error, Result};
use crate::group::{Group, Resumes, WorkOrders};
use crate::lookup::LookupMemos;
use crate::pool::{AdaptiveOrder, BlockPool, Event};
use crate::request::{GroupBlocks, RequestBlocks, RequestId};

type RequestMap = hashbrown::HashMap<RequestId, RequestBlocks, foldhash::fast::FixedState>;

/// The manager. One owner has all of its state.
#[derive(Debug)]
pub struct Manager {
    pub(crate) config: ManagerConfig,
    plan: Plan,
    pub(crate) groups: Vec<Group>,
    pub(crate) pool: BlockPool,
    pub(crate) requests: RequestMap,
    pub(crate) orders: WorkOrders,
    pub(crate) written: Written,
    memos: LookupMemos,
    admitted: Admitted,
    /// Where requests resumed, if tails are graded.
    resumes: Option<Resumes>,
}

impl Manager {
    /// A manager, or what is wrong with its configuration.
    pub fn new(config: ManagerConfig) -> Result<Self> {
        let (plan, groups) = Plan::new(&config)?;
        let order = config.policy.recycle_order;
        let is_adaptive = config.policy.retention == Retention::Adaptive;
        let adaptive = is_adaptive.then(|| AdaptiveOrder {
            marks: plan::marks(&groups),
            num_protected: config.policy.protected_share.of(config.num_blocks.saturating_sub(1)),
        });
        let mut pool = BlockPool::with_order(
            config.num_blocks,
            groups.len(),
            order,
            config.enable_events,
            adaptive,
        )?;
        if config.observe {
            pool.observe();
        }
        if is_adaptive {
            pool.count_evictions_by_group();
        }
        Ok(Self {
            orders: WorkOrders::new(groups.len()),
            pool,
            requests: RequestMap::default(),
            written: Written::default(),
            memos: LookupMemos::default(),
            admitted: Admitted::default(),
            resumes: is_adaptive.then(|| Resumes::new(plan.rules.alignment)),
            plan,
            groups,
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
        let states = self.pool.blocks();
        let cached = |is_state: bool, blocks: &GroupBlocks| {
            let mut lengths =
                blocks.iter_held_back().filter_map(|block| states.hash_num_tokens(block));
            // The last is the longest, unless blocks stand for whole prefixes.
            if is_state { lengths.max() } else { lengths.next() }.unwrap_or(0)
        };
        let groups = self.groups.iter().zip(&held.groups);
        let cacheable = groups.filter(|(group, _)| group.is_cacheable);
        Ok(cacheable.map(|(group, held)| cached(group.is_state, &held.blocks)).min().unwrap_or(0))
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.pool.events_mut().take()
    }

    /// The block pool.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// The block pool, to take and release blocks outside any request.
    pub fn pool_mut(&mut self) -> &mut BlockPool {
        &mut self.pool
    }

    /// The groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// A scheduling step starts.
    pub fn new_step_starts(&mut self) {
        self.groups.iter_mut().for_each(Group::step_starts);
    }

    /// The configuration.
    pub fn config(&self) -> &ManagerConfig {
        &self.config
    }

    /// A multiple of every group's block size; replays of a prompt end at multiples of it.
    pub fn scheduler_block_size(&self) -> usize {
        self.plan.scheduler_block_size
    }

    /// Tokens per block hash.
    pub fn hash_block_size(&self) -> usize {
        self.plan.hash_block_size
    }

    /// Hits are multiples of this many tokens.
    pub fn hit_alignment(&self) -> usize {
        self.plan.hit_alignment
    }

    /// Whether hits can end inside blocks, at any multiple of the hash block size.
    pub fn has_partial_hits(&self) -> bool {
        self.plan.rules.has_partial_hits
    }

    /// Whether states are kept at shared-prefix junctions inside a block.
    pub fn keeps_junction_states(&self) -> bool {
        self.plan.rules.keeps_junction_state
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
        if hit.len() != self.groups.len() {
            return Err(Error::Request(format!(
                "a hit of {} groups cannot be cut; this manager has {}",
                hit.len(),
                self.groups.len()
            )));
        }
        let cut = |(group, blocks): (&Group, &GroupBlocks)| {
            let mut blocks = blocks.clone();
            let is_aligned = num_computed_tokens.is_multiple_of(group.block_size);
            // What opted out of caching may have another block size than hits.
            let is_cut = group.is_cacheable || !group.kind().covers_tokens();
            let len = match is_cut {
                true if is_aligned => Some(num_computed_tokens / group.block_size),
                true => None,
                false => Some(0).filter(|_| blocks.is_empty()),
            };
            // A connector may bring the state where a local one is missing.
            let is_held = |&len: &usize| group.is_state || len <= blocks.len();
            let Some(len) = len.filter(is_held).map(|len| len.min(blocks.len())) else {
                return Err(Error::Precondition(format!(
                    "a hit of {} blocks of {} tokens cannot be cut to {num_computed_tokens} \
                     tokens; give a multiple of the block size within the hit",
                    blocks.len(),
                    group.block_size
                )));
            };
            blocks.truncate(len);
            Ok(blocks)
        };
        self.groups.iter().zip(hit).map(cut).collect()
    }

    /// A list without blocks for every group.
    pub fn no_blocks(&self) -> Vec<GroupBlocks> {
        vec![GroupBlocks::default(); self.groups.len()]
    }

    fn is_hybrid(&self) -> bool {
        self.config.enable_caching && self.groups.len() > 1
    }
}

fn unknown(request: RequestId) -> Error {
    Error::UnknownRequest(request.to_string())
}
