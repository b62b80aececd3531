//! The KV-cache block manager of an LLM inference server.
//!
//! This crate makes every decision: which block a request gets, which prefix it hits, which block
//! is evicted. It knows no Python and does no I/O. Read [`manager`] top to bottom to follow one
//! request through it. The modules stand in the order of their layers: each uses only those below.

mod check;
pub mod manager;

mod lookup;

pub mod group;

pub mod pool;

pub mod request;

pub mod block_hash;

mod block;
mod error;

pub use block::{BlockHash, BlockId, CacheKey, GroupId, MAX_BLOCKS, NULL_BLOCK};
pub use check::{check, check_direct_writes, digest};
pub use error::{Error, Result};
pub use group::{BlockDemand, GroupSpec, Offload, Size};
pub use lookup::{DeepestHit, PrefixHit, SearchResult};
pub use manager::{
    Admitted, AllocateArgs, ByKind, Manager, ManagerConfig, Policy, ProtectedShare, Retention,
    RetentionReport,
};
pub use pool::{
    BlockPool, Event, Ids, Observation, RecycleOrder, RetentionPriority, Runs, StoredEvent,
};
pub use request::{GroupBlocks, HashSource, HashWindow, RequestBlocks, RequestId, RequestView};
