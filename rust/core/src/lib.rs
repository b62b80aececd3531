//! The KV-cache block manager of an LLM inference server.
//!
//! This crate makes every decision: which block a request gets, which prefix it hits, which block
//! is evicted. It knows no Python and does no I/O. To follow one request, read [`manager`] from top
//! to bottom. The modules are listed by layer: each module uses only modules that are listed later.
//!
//! ```
//! use kvoxide_core::{AllocateArgs, BlockHash, GroupSpec, Manager, ManagerConfig, RequestView};
//!
//! // A pool of 10 blocks for full attention, 16 tokens per block, at most 160 tokens per request.
//! let mut manager = Manager::new(ManagerConfig::new(10, vec![GroupSpec::full(16)], 160))?;
//! let hashes = [BlockHash([1, 0, 0, 0]), BlockHash([2, 0, 0, 0])];
//! let request = RequestView::new(1, &hashes[..], 40);
//! let args = AllocateArgs { num_new_tokens: 40, ..AllocateArgs::default() };
//! assert_eq!(manager.allocate_slots(&request, &args)?, Some(vec![vec![1, 2, 3]]));
//! manager.free(1)?;
//! // Another request with the same hashes hits the two full blocks.
//! assert_eq!(manager.get_computed_blocks(2, &request.hashes, 39)?.length, 32);
//! # Ok::<(), kvoxide_core::Error>(())
//! ```

mod check;

pub mod joint;

pub mod manager;

pub mod outcomes;

mod lookup;

pub mod group;

pub mod retention;

pub mod host;

pub mod pool;

pub mod request;

pub mod block_hash;

mod block;
mod error;

pub use block::{BlockHash, BlockId, CacheKey, GroupId, MAX_BLOCKS, NULL_BLOCK};
pub use check::{check, check_direct_writes, digest};
pub use error::{Error, Result};
pub use group::{GroupSpec, Offload, Size, SlotDemand};
pub use lookup::{DeepestHit, PrefixHit};
pub use manager::{
    Admitted, AllocateArgs, BlockCounts, ByKind, Follower, GroupMemory, Manager, ManagerConfig,
    ObservedAdmission, ObservedRequest, OutcomeReport, RetentionReport,
};
pub use outcomes::{Outcome, PromptOutcomes};
pub use pool::{
    BlockPool, Event, Observation, Part, Parts, RecycleOrder, RequestRetention, RetentionPriority,
    SessionId, StoredEvent,
};
pub use request::{GroupBlocks, HashSource, HashWindow, RequestBlocks, RequestId, RequestView};
pub use retention::{OlderRules, Policy, ProtectedShare, Retention};
