//! Events of the tier.

use crate::block::CacheKey;

/// The change that an event reports about its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEventKind {
    /// The keys became ready.
    Stored,
    /// The keys were evicted.
    Removed,
    /// The store of the keys failed, so they are gone without having been ready.
    Failed,
}

/// A change of chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEvent {
    /// The kind of change.
    pub kind: HostEventKind,
    /// The keys, in the order of the call.
    pub keys: Vec<CacheKey>,
}
