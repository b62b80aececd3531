//! The keys of a request in one group, found in pool and tier.

use std::ops::Range;

use crate::block::{CacheKey, GroupId};
use crate::host::lookup::last_window;
use crate::host::search::{ChunkLookup, HostGroup};
use crate::host::tier::{ChunkState, HostTier};
use crate::pool::BlockPool;
use crate::request::{HashSource, HashWindow};

/// The keys of a request's chunks in one group, by their place.
pub trait ChunkKeys: ChunkLookup {
    /// Returns the key of the chunk at a place.
    fn at(&self, place: usize) -> CacheKey;
}

/// The keys of a request in one group, made of its hashes.
#[derive(Clone, Copy, Debug)]
pub struct HashKeys<'a> {
    hashes: HashWindow<'a>,
    group: GroupId,
    /// Hashes per chunk.
    per_chunk: usize,
}

impl<'a> HashKeys<'a> {
    /// Returns the keys of a group, of hashes that cover `hash_block_size` tokens each.
    pub fn of(group: &HostGroup, hashes: HashWindow<'a>, hash_block_size: usize) -> Self {
        let per_chunk = group.tokens_per_chunk / hash_block_size;
        Self { hashes, group: group.group_idx as GroupId, per_chunk }
    }

    /// Returns the keys at some places.
    pub fn at_places(
        &self,
        places: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = CacheKey> + ExactSizeIterator + '_ {
        places.map(|place| self.at(place))
    }
}

impl ChunkKeys for HashKeys<'_> {
    fn at(&self, place: usize) -> CacheKey {
        CacheKey { hash: self.hashes.of_block(place, self.per_chunk), group: self.group }
    }
}

impl ChunkLookup for HashKeys<'_> {
    fn len(&self) -> usize {
        HashSource::len(&self.hashes) / self.per_chunk
    }

    fn prefix(&self, places: Range<usize>, tier: &HostTier) -> Option<usize> {
        tier.lookup_prefix(self.at_places(places))
    }

    fn window(
        &self,
        places: Range<usize>,
        (window, first_window): (usize, usize),
        tier: &HostTier,
    ) -> Option<usize> {
        tier.lookup_window(self.at_places(places), window, first_window)
    }

    fn is_any_loading(&self, places: Range<usize>, tier: &HostTier) -> bool {
        tier.is_any_loading(self.at_places(places))
    }
}

/// The keys of a request in one group as a load can use them: blocks of the pool up to the first one
/// that it lacks, then chunks of the tier. Each place of a window is taken from the pool, or from the
/// tier if the pool lacks it, and a state from the tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadableKeys<'a, K> {
    /// The keys.
    pub keys: &'a K,
    /// The pool.
    pub pool: &'a BlockPool,
    /// Whether each chunk is a state.
    pub is_state: bool,
}

impl<K: ChunkKeys> LoadableKeys<'_, K> {
    fn is_in_pool(&self, place: usize) -> bool {
        self.pool.find(&self.keys.at(place)).is_some()
    }
}

impl<K: ChunkKeys> ChunkLookup for LoadableKeys<'_, K> {
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
        if self.is_state {
            return self.keys.window(places, windows, tier);
        }
        let is_ready = |place| match self.is_in_pool(place) {
            true => Some(true),
            false => {
                let chunk = tier.lookup(&self.keys.at(place))?;
                Some(matches!(chunk, ChunkState::Ready { .. }))
            }
        };
        last_window(places.map(is_ready), windows)
    }

    fn is_any_loading(&self, places: Range<usize>, tier: &HostTier) -> bool {
        self.keys.is_any_loading(places, tier)
    }
}
