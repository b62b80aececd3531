//! The keys of a request's chunks in one group, found in pool or tier.

use std::ops::Range;

use kvoxide_core::BlockPool;
use kvoxide_core::host::{ChunkKeys, ChunkLookup, HashKeys, HostTier, last_window};

/// The keys of a request in one group, found where a chunk is in the tier or its block in the pool.
pub(super) struct KeysOfBoth<'a> {
    pub keys: HashKeys<'a>,
    pub pool: &'a BlockPool,
    /// How many leading chunks are known to be found.
    pub num_found: usize,
}

impl KeysOfBoth<'_> {
    fn has(&self, place: usize, tier: &HostTier) -> bool {
        let key = self.keys.at(place);
        self.pool.find(&key).is_some() || tier.lookup(&key).is_some()
    }
}

impl ChunkLookup for KeysOfBoth<'_> {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn prefix(&self, places: Range<usize>, tier: &HostTier) -> Option<usize> {
        let Range { start, end } = places;
        let mut unknown = self.num_found.min(end).max(start)..end;
        Some(unknown.find(|&place| !self.has(place, tier)).unwrap_or(end) - start)
    }

    fn window(
        &self,
        places: Range<usize>,
        windows: (usize, usize),
        tier: &HostTier,
    ) -> Option<usize> {
        last_window(places.map(|place| self.has(place, tier).then_some(true)), windows)
    }

    fn is_any_loading(&self, _places: Range<usize>, _tier: &HostTier) -> bool {
        false
    }
}
