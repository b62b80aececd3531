//! KV cache groups: what of a prefix each needs to continue from it, and how its tables are kept.
//!
//! A kind of group is one module here, which declares the kind and implements [`Kind`], and its
//! line in the registry.

mod cache_rules;
mod cache_target;
mod caching;
mod chunked_local;
mod circular_buffer;
mod cross_attention;
mod data;
mod declaration;
mod demand;
mod full;
mod group_of_kind;
mod growing;
mod kind;
mod linked_prefix;
mod mamba;
mod near_end;
mod orders;
mod partial_hits;
mod query;
mod registry;
mod retention;
mod rswa;
mod sliding_window;
mod spec;
mod turn;
mod worth;

pub use cache_rules::CacheRules;
pub use cache_target::CacheTarget;
pub use data::{GroupData, Head};
pub use declaration::{Caching, Declaration, Sharding, Support};
pub use demand::{BlockDemand, GroupDemand};
pub use group_of_kind::Group;
pub use kind::{Asked, Checkpoint, Kind, StepAhead};
pub use near_end::{NearEnd, Resumes};
pub use orders::{Offload, WorkOrders};
pub use partial_hits::SharedTail;
pub use query::{GroupHit, HitQuery, KnownPrefix};
pub use registry::{declaration, kind_of, kinds, supported_kinds};
pub use retention::{Reach, ReachableBlocks, replay_boundaries};
pub use spec::{GroupSpec, Size, Sizes};
pub use turn::{Adoption, External, Slots, Turn};
pub use worth::Worth;
