//! The host tier: chunks of KV in CPU memory, where blocks of the pool are copied to.
//!
//! A *chunk* holds the blocks of one [`CacheKey`](crate::block::CacheKey). A store makes it
//! *pending*, and the end of the store makes it *ready*. A ready chunk without references is
//! *evictable*. The tier makes the decisions of vLLM's `CPUOffloadingManager` with its policies
//! `lru` and `arc`: which keys are stored and where, which chunks are evicted for them, and in which
//! order.
//!
//! In the order of its layers, each module uses only the modules below it:
//!
//! - [`together`]: GPU and CPU memory together, for `adaptive`.
//! - [`search`]: the longest hit of a request in all groups of a connector.
//! - [`leaving`], [`lookup`], [`store`], [`tier`]: the calls of the tier. The first has the calls of
//!   kvoxide's own policy, `adaptive`. The second looks up many keys, the third stores them, and the
//!   last has all other calls.
//! - [`policy`]: orders the evictable chunks, by `lru`, `arc` or `adaptive`.
//! - [`request`], [`store_tracker`]: what is known of a request, and of keys that were offered.
//!   [`event`] and [`release`] have the types of events and of vLLM's releases.
//! - [`chunks`], [`ordered_keys`]: the containers, chunks by key and keys in an order.
//! - [`key`], [`links`]: keys with their positions, and the links of ordered lists.

mod together;

mod search;

mod leaving;
mod lookup;
mod store;
mod tier;

mod policy;

mod event;
mod release;
mod request;
mod store_tracker;

mod chunks;
mod ordered_keys;

mod key;
mod links;

pub use chunks::{ChunkId, MAX_CHUNKS, Transfers};
pub use event::{HostEvent, HostEventKind};
pub use key::{Position, PositionedKey};
pub use leaving::LeavingStores;
pub use lookup::{PrefixMemo, last_window};
pub use policy::{HostPolicy, LruRank};
pub use release::VllmVersion;
pub use request::{HostRequest, Seen};
pub use search::{ChunkLookup, HostGroup, HostHit, HostSearch, TooFewKeys, WantedLoad};
pub use store::StorePlan;
pub use tier::{ChunkState, HostTier, HostTierConfig};
pub use together::{ChunkKeys, HashKeys, Horizon, StoreWait, attached};
