//! The blocks that adaptive retention sampled on a recorded server, so that a replay samples the same.

use std::collections::HashMap;
use std::ops::Range;

use kvoxide_core::BlockHash;
use kvoxide_core::pool::num_samples;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::trace::Schedule;

/// The sampled blocks of all recordings of a trace.
#[derive(Debug)]
pub struct Samples {
    /// The ids of recordings that have samples.
    known: Vec<Range<i64>>,
    sampled: HashMap<i64, u8>,
}

impl Samples {
    /// Returns the samples of schedules; `None` if they have none.
    pub fn of(schedules: &[Schedule]) -> Option<Self> {
        let starts = schedules.iter().map(|schedule| schedule.first_id);
        let ends = starts.skip(1).chain([i64::MAX]);
        let known = schedules.iter().zip(ends);
        let known = known.filter(|(schedule, _)| !schedule.samples.is_empty());
        let known: Vec<_> = known.map(|(schedule, end)| schedule.first_id..end).collect();
        let sampled = schedules.iter().flat_map(|schedule| schedule.samples.iter().copied());
        (!known.is_empty()).then(|| Self { known, sampled: sampled.collect() })
    }

    /// Returns the hash of a block, which is sampled as the block with this id was on the server.
    pub fn hash(&self, block: &[u8], id: i64) -> [u8; 16] {
        let is_known = self.known.iter().any(|ids| ids.contains(&id));
        let wanted = self.sampled.get(&id).copied().or(is_known.then_some(0));
        let hashes = (0..).map(|seed| xxh3_128_with_seed(block, seed).to_le_bytes());
        let is_wanted = |hash: &[u8; 16]| {
            let hash = BlockHash::from_slice(hash);
            wanted.is_none_or(|wanted| hash.is_some_and(|it| num_samples(&it) == u32::from(wanted)))
        };
        hashes.take(MOST_SEEDS).find(is_wanted).unwrap_or_else(|| default_hash(block))
    }
}

/// Returns the hash of a block, if it does not matter whether it is sampled.
pub fn default_hash(block: &[u8]) -> [u8; 16] {
    xxh3_128_with_seed(block, 0).to_le_bytes()
}

/// The most hashes of a block that are tried. One in 64 is sampled at each density.
const MOST_SEEDS: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_sampled_as_recorded() {
        let of = |first_id, samples| Schedule { first_id, samples, ..Schedule::default() };
        let schedules = [of(0, vec![(3, 1), (4, 3)]), of(10, vec![])];
        let samples = Samples::of(&schedules).expect("samples");
        let found = |id| {
            let block = i64::to_le_bytes(id);
            let hash = samples.hash(&block, id);
            (num_samples(&BlockHash::from_slice(&hash).expect("a hash")), hash)
        };
        assert_eq!((found(3).0, found(4).0), (1, 3));
        assert!([0, 1, 2, 5, 6, 7, 8, 9].into_iter().all(|id| found(id).0 == 0));
        assert!((10..900).all(|id| found(id).1 == default_hash(&id.to_le_bytes())));
        assert!((10..900).any(|id| found(id).0 > 0));
        assert!(Samples::of(&schedules[1..]).is_none());
    }
}
