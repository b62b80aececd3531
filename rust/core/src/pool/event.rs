//! What entered the prefix cache and what left it, for routers and other observers.

use crate::block::{BlockHash, GroupId};
use crate::request::RequestId;

/// One change of the prefix cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Blocks entered the cache, or were reported again because a request reused them.
    Stored(StoredEvent),
    /// One key left the cache.
    Removed {
        /// The block hash.
        hash: BlockHash,
        /// Its group.
        group: GroupId,
    },
    /// The cache was reset.
    Cleared,
}

/// Blocks of one request and one group that entered the cache together. Token ids and extra keys
/// are the request's; the caller adds them from `start_token`, `end_token` and `block_starts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Whose blocks they are.
    pub request: RequestId,
    /// Their group.
    pub group: GroupId,
    /// The hashes that entered the cache; masked and null blocks of the range are left out.
    pub block_hashes: Vec<BlockHash>,
    /// First token of each block of `block_hashes`.
    pub block_starts: Vec<usize>,
    /// Hash of the prefix before `start_token`.
    pub parent: Option<BlockHash>,
    /// First token of the range.
    pub start_token: usize,
    /// End of the range, exclusive.
    pub end_token: usize,
    /// Tokens per block: the group's block size, or the length of a partial block's entry.
    pub block_size: usize,
    /// Whether it is a partial block's entry.
    pub is_partial: bool,
}

/// The events that have not been handed out, if events are wanted.
#[derive(Debug, Default)]
pub struct EventLog(Option<Vec<Event>>);

impl EventLog {
    pub(super) fn new(is_kept: bool) -> Self {
        Self(is_kept.then(Vec::new))
    }

    /// Whether events are wanted.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Number of events.
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
