//! The host tier: chunks of KV in CPU memory behind the pool.
//!
//! A *chunk* holds the blocks of one [`CacheKey`]. A store makes it *pending*, its completion makes
//! it *ready*; a ready chunk without references is *evictable*. The tier decides what vLLM's
//! `CPUOffloadingManager` decides with its policies `lru` and `arc`: which keys are stored and
//! where, which chunks they push out, and in which order chunks are evicted.
//!
//! In the order of its layers: each module uses only those below it.

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

pub use chunks::{ChunkId, MAX_CHUNKS};
pub use event::{HostEvent, HostEventKind};
pub use key::{Position, PositionedKey};
pub use lookup::PrefixMemo;
pub use policy::{HostPolicy, LruRank};
pub use release::VllmVersion;
pub use request::{HostRequest, Seen};
pub use store::StorePlan;
pub use tier::{ChunkState, HostTier, HostTierConfig};
