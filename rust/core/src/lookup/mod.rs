//! Look-ups: the longest cached prefix that every group can continue from, and what is remembered
//! of it while a request waits.

mod hit;
mod memo;
mod prefix;
mod search;
mod spec_group;

pub use hit::{DeepestHit, PrefixHit, SearchResult};
pub use memo::{ChainEnd, LookupMemo, LookupMemos};
pub use prefix::CachedPrefix;
pub use search::HitSearch;
pub use spec_group::SpecGroup;
