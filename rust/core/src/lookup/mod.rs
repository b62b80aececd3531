//! Looks up the longest cached prefix from which every group can continue. The result is remembered
//! while the request waits.
//!
//! - [`memo`]: keeps the last look-up of each waiting request, so that only changes are looked up.
//! - [`search`]: finds the longest hit on which all groups agree, in rounds.
//! - [`prefix`]: keeps the longest cached prefix of a request up to date, for [`search`].
//! - [`spec_group`]: gathers the groups that are searched together, and the order of the search.
//! - [`hit`]: has the results.
//!
//! What each kind of group needs for a hit is `longest_hit` of its file in `group/kinds`.

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
