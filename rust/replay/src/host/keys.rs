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

/// Returns the end of the last run of `window` places that have a chunk or block, counted from the
/// first place. The run at the end has to have `first_window`. Without such a run, it is the end of
/// the run at the start.
fn last_window(
    places: Range<usize>,
    (window, first_window): (usize, usize),
    has: impl Fn(usize) -> bool,
) -> usize {
    let (start, mut run, mut wanted) = (places.start, 0, first_window);
    for place in places.rev() {
        match has(place) {
            true => run += 1,
            false => (run, wanted) = (0, window),
        }
        if run == wanted {
            return place - start + run;
        }
    }
    run
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
        windows: (usize, usize),
        tier: &HostTier,
    ) -> Option<usize> {
        Some(last_window(places, windows, |place| self.has(place, tier)))
    }

    fn is_any_loading(&self, _places: Range<usize>, _tier: &HostTier) -> bool {
        false
    }
}

/// The same keys as a load can use them: blocks of the pool up to the first one that it lacks, then
/// chunks of the tier. A window is taken from one of the two, and a state from the tier.
pub(super) struct LoadableKeys<'a> {
    pub keys: GroupKeys<'a>,
    pub pool: &'a BlockPool,
    pub is_state: bool,
}

impl LoadableKeys<'_> {
    fn is_in_pool(&self, place: usize) -> bool {
        self.pool.find(&self.keys.at(place)).is_some()
    }
}

impl ChunkLookup for LoadableKeys<'_> {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn prefix(&self, places: Range<usize>, tier: &HostTier) -> Option<usize> {
        let num_in_pool = places.clone().take_while(|&place| self.is_in_pool(place)).count();
        let rest = self.keys.prefix(places.start + num_in_pool..places.end, tier)?;
        Some(num_in_pool + rest)
    }

    fn window(
        &self,
        places: Range<usize>,
        windows: (usize, usize),
        tier: &HostTier,
    ) -> Option<usize> {
        let in_pool = match self.is_state {
            true => 0,
            false => last_window(places.clone(), windows, |place| self.is_in_pool(place)),
        };
        match self.keys.window(places, windows, tier) {
            Some(in_tier) => Some(in_tier.max(in_pool)),
            None => (in_pool > 0).then_some(in_pool),
        }
    }

    fn is_any_loading(&self, places: Range<usize>, tier: &HostTier) -> bool {
        self.keys.is_any_loading(places, tier)
    }
}
