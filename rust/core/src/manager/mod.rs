//! The KV cache manager of a scheduler, in the order of a request's life.
//!
//! [`Manager::get_computed_blocks`] finds the longest cached prefix of a request.
//! [`Manager::allocate_slots`] admits the request with that hit. Then it serves each step: it
//! releases blocks that left a window, allocates new ones and caches those that became full.
//! [`Manager::free`] releases every block. The manager makes the same decisions as vLLM.

mod admit;
mod cache;
mod direct_writes;
mod follower;
mod look_up;
mod memory;
mod outcomes;
mod priorities;
mod quiet;
mod release;
mod report;
mod worker;

mod capacity;

mod context;

mod args;
mod layout;

mod config;

pub use args::AllocateArgs;
pub use config::ManagerConfig;
pub use follower::Follower;
pub use memory::GroupMemory;
pub use outcomes::{ObservedAdmission, ObservedRequest, OutcomeReport};
pub use quiet::QuietSteps;
pub use report::{Admitted, BlockCounts, ByKind, RetentionReport};

use direct_writes::DirectWrites;
use layout::Layout;

use crate::error::{Error, Result};
use crate::group::{Group, WorkerCommands};
use crate::lookup::LookupMemos;
use crate::outcomes::OutcomeObserver;
use crate::pool::{BlockPool, Event};
use crate::request::{RequestBlocks, RequestId};
use crate::retention::ActivePolicy;

type RequestMap = hashbrown::HashMap<RequestId, RequestBlocks, foldhash::fast::FixedState>;

/// Manages the block pool, the groups and the blocks of every request.
#[derive(Debug)]
pub struct Manager {
    pub(crate) config: ManagerConfig,
    layout: Layout,
    pub(crate) groups: Vec<Group>,
    pub(crate) pool: BlockPool,
    pub(crate) requests: RequestMap,
    pub(crate) commands: WorkerCommands,
    pub(crate) direct_writes: DirectWrites,
    memos: LookupMemos,
    admitted: Admitted,
    /// Classifies prompts, if their outcomes are observed.
    pub(crate) outcomes: Option<Box<OutcomeObserver>>,
    /// Decides what CPU memory keeps, if it decides together with the pool.
    follower: Option<Box<dyn Follower>>,
    retention: ActivePolicy,
}

impl Manager {
    /// Returns a manager with an empty cache, or [`Error::Config`] for a configuration that cannot
    /// work.
    pub fn new(config: ManagerConfig) -> Result<Self> {
        let (layout, groups, retention) = Layout::new(&config)?;
        let eviction = retention.eviction(config.num_blocks);
        let counts_evictions = eviction.is_some();
        let order = config.policy.recycle_order;
        let mut pool =
            BlockPool::new(config.num_blocks, groups.len(), order, config.enable_events, eviction)?;
        if config.observe {
            pool.observe();
        }
        if counts_evictions {
            pool.index_mut().count_evictions_by_group();
        }
        Ok(Self {
            commands: WorkerCommands::new(groups.len()),
            pool,
            requests: RequestMap::default(),
            direct_writes: DirectWrites::default(),
            memos: LookupMemos::default(),
            admitted: Admitted::default(),
            outcomes: None,
            follower: None,
            retention,
            layout,
            groups,
            config,
        })
    }

    /// Returns the blocks of a request in every group, or [`Error::UnknownRequest`].
    pub fn blocks_of(&self, request: RequestId) -> Result<&RequestBlocks> {
        self.requests.get(&request).ok_or_else(|| unknown(request))
    }

    /// Returns whether a request was admitted, or its tables written, and it was not freed since.
    pub fn knows(&self, request: RequestId) -> bool {
        self.requests.contains_key(&request)
    }

    /// Returns whether the manager has served requests.
    pub fn has_served(&self) -> bool {
        let has_admitted = self.admitted.prompt_tokens > 0 || self.pool.index().num_keys() > 0;
        has_admitted || !self.requests.is_empty()
    }

    /// Returns the number of requests that the manager knows.
    pub fn num_requests(&self) -> usize {
        self.requests.len()
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.pool.index_mut().events_mut().take()
    }

    /// Returns the block pool.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Returns the block pool, for changes to blocks that no request holds.
    pub fn pool_mut(&mut self) -> &mut BlockPool {
        &mut self.pool
    }

    /// Returns the groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Starts a scheduling step.
    pub fn new_step_starts(&mut self) {
        let states = self.groups.iter_mut().filter_map(Group::states_mut);
        states.for_each(|states| states.step_starts());
        if let Some(follower) = &mut self.follower {
            follower.step_starts();
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ManagerConfig {
        &self.config
    }

    /// Returns the scheduler block size. Repeated prompts resume at its multiples, and every block
    /// size divides it.
    pub fn scheduler_block_size(&self) -> usize {
        self.retention.rules().scheduler_block_size
    }

    /// Returns the tokens per block hash.
    pub fn hash_block_size(&self) -> usize {
        self.retention.rules().hash_block_size
    }

    /// Returns the alignment of hits: the length of a hit is a multiple of this many tokens.
    pub fn hit_alignment(&self) -> usize {
        self.layout.hit_alignment
    }

    /// Returns whether hits can end inside blocks, at any multiple of the hash block size.
    pub fn has_partial_hits(&self) -> bool {
        self.retention.rules().has_partial_hits
    }

    /// Returns whether states are kept at shared-prefix boundaries inside a block.
    pub fn keeps_boundary_states(&self) -> bool {
        self.retention.rules().keeps_boundary_state
    }

    /// Returns how many blocks stay free when a waiting request is admitted while other requests
    /// run.
    pub fn watermark_blocks(&self) -> usize {
        self.layout.watermark_blocks
    }

    fn is_hybrid(&self) -> bool {
        self.config.enable_caching && self.retention.rules().is_hybrid
    }
}

fn unknown(request: RequestId) -> Error {
    Error::UnknownRequest(request.to_string())
}
