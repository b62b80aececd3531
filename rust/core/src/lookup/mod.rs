//! Looks up the longest cached prefix from which every group can continue. The result is remembered
//! while the request waits.

mod hit;
mod memo;
mod prefix;
mod search;
mod spec_group;

pub use hit::{DeepestHit, PrefixHit};
pub(crate) use memo::{ChainEnd, LookupMemo, LookupMemos};
pub(crate) use prefix::CachedPrefix;
pub(crate) use search::HitSearch;
pub(crate) use spec_group::SpecGroup;
