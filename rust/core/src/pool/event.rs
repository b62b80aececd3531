//! Events that report which blocks were added to the prefix cache and which keys were removed, for
//! routers and other observers.

use crate::block::{BlockHash, GroupId};
use crate::request::RequestId;

/// One change of the prefix cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Blocks were added to the cache, or were reported again because a request reused them.
    Stored(StoredEvent),
    /// One key was removed from the cache.
    Removed {
        /// The block hash.
        hash: BlockHash,
        /// Its group.
        group: GroupId,
    },
    /// The cache was reset.
    Cleared,
}

/// Blocks of one request and one group that were added to the cache together. The request has the
/// token ids and extra keys. The caller adds them from `start_token`, `end_token` and
/// `block_starts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// The request that has the blocks.
    pub request: RequestId,
    /// The group of the blocks.
    pub group: GroupId,
    /// The hashes that were added to the cache. Masked and null blocks of the range are left out.
    pub block_hashes: Vec<BlockHash>,
    /// The first token of each block of `block_hashes`.
    pub block_starts: Vec<usize>,
    /// The hash of the prefix before `start_token`.
    pub parent: Option<BlockHash>,
    /// The first token of the range.
    pub start_token: usize,
    /// The end of the range, exclusive.
    pub end_token: usize,
    /// Tokens per block: the group's block size, or the length of a partial block's entry.
    pub block_size: usize,
    /// Whether the event is a partial block's entry.
    pub is_partial: bool,
}

/// The events that were not taken yet, if the pool records events.
#[derive(Debug, Default)]
pub struct EventLog(Option<Vec<Event>>);

impl EventLog {
    pub(super) fn new(is_kept: bool) -> Self {
        Self(is_kept.then(Vec::new))
    }

    /// Returns whether the pool records events.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the number of events.
    pub fn count(&self) -> usize {
        self.0.as_ref().map_or(0, Vec::len)
    }

    pub(crate) fn push(&mut self, event: impl FnOnce() -> Event) {
        if let Some(events) = &mut self.0 {
            events.push(event());
        }
    }

    /// Returns the events since the last call.
    pub fn take(&mut self) -> Vec<Event> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
