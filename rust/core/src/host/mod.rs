//! The host tier: chunks of KV in CPU memory behind the pool.
//!
//! A *chunk* holds the blocks of one [`CacheKey`]. A store makes it *pending*, its completion makes
//! it *ready*; a ready chunk without references is *evictable*. The tier decides what vLLM's
//! `CPUOffloadingManager` decides with its policies `lru` and `arc`: which keys are stored and
//! where, which chunks they push out, and in which order chunks are evicted.

mod lookup;
mod store;
mod tier;

mod policy;

mod event;
mod request;
mod store_tracker;

mod chunks;
mod ordered_keys;

mod links;

pub use chunks::{ChunkId, MAX_CHUNKS};
pub use event::{HostEvent, HostEventKind};
pub use lookup::PrefixMemo;
pub use policy::{HostPolicy, LruRank};
pub use request::{HostRequest, Seen};
pub use store::StorePlan;
pub use tier::{ChunkState, HostTier, HostTierConfig, VllmVersion};

use crate::block::CacheKey;

/// The position of a key: the number of tokens at its end, if it is known.
pub type Position = Option<u32>;

/// A key and its position.
pub type PositionedKey = (CacheKey, Position);

/// Mixes a key, whose hash is one already unless a test made it.
#[inline]
fn hash_of(key: &CacheKey) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let [first, second, third, fourth] = key.hash.0;
    let mixed = u128::from(first ^ third ^ u64::from(key.group) << 48)
        * u128::from(second ^ fourth ^ MULTIPLIER);
    (mixed as u64) ^ (mixed >> 64) as u64
}
