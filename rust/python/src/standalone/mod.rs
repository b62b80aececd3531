//! The manager for servers without vLLM, in the order of its layers: each module uses only those
//! below it.

mod followed;

mod manager;

mod pool;

mod blocks;
mod checks;

mod state;

mod clock;

mod loads;
mod noted;

mod events;
mod stats;

mod request;

mod retention;

mod hasher;

pub(crate) use blocks::{PyBlock, PyBlocks};
pub(crate) use events::{AllBlocksCleared, BlockRemoved, BlockStored};
pub(crate) use followed::{FollowedManager, HitOfBoth};
pub(crate) use hasher::PyBlockHasher;
pub(crate) use loads::EmptyLoads;
pub(crate) use manager::PyManager;
pub(crate) use pool::PyBlockPool;
pub(crate) use request::{PyRequest, RequestStatus};
pub(crate) use retention::PyRetention;
pub(crate) use stats::PrefixCacheStats;
