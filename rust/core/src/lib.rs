//! The KV-cache block manager of an LLM inference server.
//!
//! This crate makes every decision: which block a request gets, which prefix it hits, which block
//! is evicted. It knows no Python and does no I/O. Read [`manager`] top to bottom to follow one
//! request through it; the modules below are in the order of the layers under it.

pub mod block;
pub mod block_hash;
pub mod caching;
pub mod chain_cursor;
pub mod config;
pub mod digest;
pub mod error;
pub mod event;
pub mod extra_keys;
pub mod free_queue;
pub mod group;
pub mod hash_index;
pub mod hashes;
pub mod hit_search;
pub mod invariant;
pub mod key_layout;
pub mod lines;
pub mod lookup_memo;
pub mod manager;
pub mod policy;
pub mod pool;
pub mod removal_log;
pub mod request;
pub mod retention;
pub mod spec;

pub use block::{BlockHash, BlockId, GroupId, NULL_BLOCK};
pub use config::ManagerConfig;
pub use error::{Error, Result};
pub use event::{Event, StoredEvent};
pub use hashes::{HashSource, HashWindow};
pub use manager::{AllocateArgs, BlockDemand, Manager, PrefixHit};
pub use policy::{Policy, RecycleOrder};
pub use request::{GroupBlocks, RequestId, RequestView};
pub use spec::GroupSpec;
