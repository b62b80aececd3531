//! The block pool. It has three parts: the records of blocks ([`blocks`]), the index that finds the
//! block for a hash ([`index`]), and the order of eviction ([`eviction`]). [`BlockPool`] combines
//! them.
//!
//! Between calls, these rules hold:
//!
//! - Every block but the null block is in exactly one place: in use (it has references), in the
//!   free queue, in the pinned tier, or in a list of another policy.
//! - The index finds exactly the keys that blocks have.
//! - Pinned blocks are cached.

mod statistics;

mod leaving;

mod block_pool;
mod observation;

mod answers;

mod block_set;

mod eviction;

mod index;

mod blocks;

mod event;

pub use block_pool::BlockPool;
pub use blocks::{
    Blocks, FullBlocks, KeyLayout, MAX_REFERENCES, NO_SEGMENT, Part, Parts, SegmentId,
};
pub use event::{Event, EventLog, StoredEvent};
pub(crate) use eviction::adaptive::tuning;
pub use eviction::adaptive::{
    Adaptive, AdaptiveConfig, BlockClass, BlockMeta, Nearness, Release, SampleCounts,
    ScoringFunction, ValueLevel, num_samples,
};
pub use eviction::by_hand::ByHand;
pub use eviction::policy::EvictionPolicy;
pub use eviction::priority::{EffectivePriority, RetentionPriority};
pub use eviction::queue::{QueueEnd, RecycleOrder};
pub use eviction::request_retention::{RequestRetention, SessionId};
pub use eviction::{EvictionHints, WithoutTail};
pub use index::{AliasKeys, PrefixIndex, RemovalLog, ReuseGaps};
pub(crate) use index::{LogPosition, PrefixCursor, TriePath};
pub use leaving::LeavingBlock;
pub use observation::Observation;
pub(crate) use statistics::PoolStatistics;
