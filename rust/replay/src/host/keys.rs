//! The keys of a request's chunks in one group.

use std::ops::Range;

use kvoxide_core::host::{ChunkLookup, HostTier};
use kvoxide_core::{BlockPool, CacheKey, GroupId, HashSource, HashWindow};

/// The keys of a request in one group.
#[derive(Clone, Copy)]
pub(super) struct GroupKeys<'a> {
    pub hashes: HashWindow<'a>,
    pub group: GroupId,
    /// Hashes per chunk.
    pub per_chunk: usize,
}

impl GroupKeys<'_> {
    pub fn at(&self, place: usize) -> CacheKey {
        CacheKey { hash: self.hashes.of_block(place, self.per_chunk), group: self.group }
    }

    pub fn of(
        &self,
        places: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = CacheKey> + ExactSizeIterator + '_ {
        places.map(|place| self.at(place))
    }
}

impl ChunkLookup for GroupKeys<'_> {
    fn len(&self) -> usize {
        self.hashes.len() / self.per_chunk
    }

    fn prefix(&self, places: Range<usize>, tier: &HostTier) -> Option<usize> {
        tier.lookup_prefix(self.of(places))
    }

    fn window(
        &self,
        places: Range<usize>,
        (window, first_window): (usize, usize),
        tier: &HostTier,
    ) -> Option<usize> {
        tier.lookup_window(self.of(places), window, first_window)
    }

    fn is_any_loading(&self, places: Range<usize>, tier: &HostTier) -> bool {
        tier.is_any_loading(self.of(places))
    }
}

/// The same keys, found where a chunk is in the tier or its block in the pool.
pub(super) struct KeysOfBoth<'a> {
    pub keys: GroupKeys<'a>,
    pub pool: &'a BlockPool,
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

    fn prefix(&self, mut places: Range<usize>, tier: &HostTier) -> Option<usize> {
        let (start, end) = (places.start, places.end);
        Some(places.find(|&place| !self.has(place, tier)).unwrap_or(end) - start)
    }

    fn window(
        &self,
        places: Range<usize>,
        (window, first_window): (usize, usize),
        tier: &HostTier,
    ) -> Option<usize> {
        let (start, mut run, mut wanted) = (places.start, 0, first_window);
        for place in places.rev() {
            match self.has(place, tier) {
                true => run += 1,
                false => (run, wanted) = (0, window),
            }
            if run == wanted {
                return Some(place - start + run);
            }
        }
        Some(run)
    }

    fn is_any_loading(&self, _places: Range<usize>, _tier: &HostTier) -> bool {
        false
    }
}
