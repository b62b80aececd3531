//! Events of the tier.

use crate::block::CacheKey;

/// What happened to the keys of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEventKind {
    /// The keys became ready.
    Stored,
    /// The keys were evicted.
    Removed,
    /// The store of the keys failed, so they are gone without having been ready.
    Failed,
}

/// Something that happened to chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEvent {
    /// What happened.
    pub kind: HostEventKind,
    /// The keys, in the order of the call.
    pub keys: Vec<CacheKey>,
}
