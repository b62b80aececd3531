//! A sample of blocks, by name alone: when each became free and when it was used again, and which
//! of them each ordering would still have.
//!
//! Free names stand in buckets by class and epoch, in the order in which they became free. An
//! ordering evicts a bucket from its front on, so that what it would still have is a position in
//! each bucket.

pub(super) mod access_log;
pub(super) mod ghost_list;
pub(super) mod table;
mod uses;

use super::ages::{AGES, Values};
use super::block_meta::CLASSES;
use super::hazard::Profile;
use super::ranks::{Ranked, Ranks};
use super::scoring::Ordering;
use super::shadow::ghost_list::{Bucket, ORDERINGS};
use super::shadow::table::{Entry, Names};

/// How a block is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It was there.
    Hit,
    /// It was computed, for the first time or once more.
    Computed,
}

/// What was asked of the sampled blocks since the pool was made, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SampleCounts {
    /// Blocks that requests asked for: those that they hit and those that they computed.
    pub asked: u64,
    /// Those of them that they hit.
    pub hit: u64,
    /// Those that would have been there under each of [`Ordering::ALL`]: in use, or not evicted.
    /// Tails that a hit needs too are not looked at, so that it can be more than was hit.
    pub kept: [u64; ORDERINGS],
}

/// The sample.
#[derive(Debug)]
pub(crate) struct Sample {
    /// A block is sampled if so many of the highest bits of its fingerprint are zero.
    pub(crate) num_zeros: u32,
    pub(crate) names: Names,
    /// By class, and of each class by epoch.
    pub(crate) buckets: Vec<Bucket>,
    pub(crate) shadows: [Shadow; ORDERINGS],
    pub(crate) profile: Profile,
    pub(crate) epoch: usize,
    in_force: usize,
    pub(crate) counts: SampleCounts,
    /// Names that are free, all of which stand in a bucket.
    pub(crate) num_free: usize,
    /// A bit for each class of which names became free since the orderings evicted.
    pub(crate) just_freed: u32,
}

/// What an ordering would have done.
#[derive(Debug)]
pub(crate) struct Shadow {
    ranks: Ranks,
    /// Free names that it would not have any more.
    pub(crate) num_evicted: usize,
    pub(crate) hits: f32,
}

/// Hits that another ordering must have per hit of the one in force to take over.
const TAKE_OVER: f32 = 1.02;
/// What is left of a hit after an epoch: half of it after 4 pools were taken.
const FADE: f32 = 0.9892;
/// Blocks of a pool from which on the sample is not one in 16 but one in 32, and from which on it is
/// one in 64. The blocks of a request are used together, so that more of each would say little.
const LARGER_POOLS: [usize; 2] = [1 << 17, 1 << 21];
/// After so many epochs the averages are looked at again, by which classes are judged of which
/// nothing was seen.
const EPOCHS_OF_UNSEEN: usize = 4;
/// Grades are not told apart.
const SCALES: [f32; 1] = [1.0];

impl Sample {
    /// For a pool of `num_blocks`.
    pub fn new(num_blocks: usize) -> Self {
        let num_larger = LARGER_POOLS.iter().filter(|&&pool| num_blocks >= pool).count();
        let num_zeros = 4 + num_larger as u32;
        let profile = Profile::new();
        let shadows = Ordering::ALL.map(|ordering| Shadow {
            ranks: Ranks::new(&SCALES, &ordering.values(&profile)),
            num_evicted: 0,
            hits: 0.0,
        });
        Self {
            num_zeros,
            names: Names::new((num_blocks >> num_zeros) * 5 + 64),
            buckets: (0..CLASSES * AGES).map(|_| Bucket::default()).collect(),
            shadows,
            profile,
            epoch: 0,
            in_force: 1,
            counts: SampleCounts::default(),
            num_free: 0,
            just_freed: 0,
        }
    }

    /// Blocks are sampled whose fingerprints are below this.
    #[inline]
    pub fn limit(&self) -> u32 {
        1 << (u32::BITS - self.num_zeros)
    }

    /// The ordering in force.
    pub fn ordering(&self) -> Ordering {
        Ordering::ALL[self.in_force]
    }

    /// Worth by class and age, under the ordering in force.
    pub fn values(&self) -> &Values {
        self.shadows[self.in_force].ranks.values()
    }

    /// What was counted.
    pub fn counts(&self) -> &SampleCounts {
        &self.counts
    }

    pub(crate) fn bucket(class: usize, epoch: usize) -> usize {
        class * AGES + epoch % AGES
    }

    /// Each ordering evicts what is beyond its share of so many free blocks like those of the
    /// sample.
    pub fn fit(&mut self, num_free_blocks: usize) {
        if self.just_freed == 0 {
            return;
        }
        let capacity = num_free_blocks >> self.num_zeros;
        for class in (0..CLASSES).filter(|class| self.just_freed >> class & 1 != 0) {
            let list = Ranked { kind: class, age: 0 };
            self.shadows.iter_mut().for_each(|shadow| shadow.ranks.fill(list));
        }
        self.just_freed = 0;
        (0..ORDERINGS).for_each(|ordering| self.evict(ordering, capacity));
    }

    fn evict(&mut self, ordering: usize, capacity: usize) {
        let shadow = &mut self.shadows[ordering];
        while self.num_free > capacity + shadow.num_evicted {
            let Some(Ranked { kind, age }) = shadow.ranks.first() else { return };
            let bucket = &mut self.buckets[Self::bucket(kind, self.epoch + AGES - age)];
            let most = self.num_free - shadow.num_evicted - capacity;
            shadow.num_evicted += bucket.evict(ordering, most);
            if bucket.is_evicted(ordering) {
                shadow.ranks.empty_first();
            }
        }
    }

    /// An epoch ends: what was seen in it counts, and the orderings are ranked anew.
    pub fn end_epoch(&mut self) {
        self.profile.end_epoch();
        self.epoch += 1;
        (0..CLASSES).for_each(|class| self.forget(Self::bucket(class, self.epoch)));
        self.forget_lost_names();
        self.choose();
        for (ordering, shadow) in Ordering::ALL.iter().zip(&mut self.shadows) {
            if ordering.learns() {
                let are_all = self.epoch.is_multiple_of(EPOCHS_OF_UNSEEN);
                self.profile.learn(shadow.ranks.values_mut(), are_all);
            }
            shadow.ranks.end_epoch();
        }
    }

    /// Forgets the names of the oldest bucket.
    fn forget(&mut self, index: usize) {
        let bucket = std::mem::take(&mut self.buckets[index]);
        for (name, is_there) in bucket.names() {
            self.names.remove(name);
            self.num_free -= 1;
            for (shadow, is_there) in self.shadows.iter_mut().zip(is_there) {
                shadow.num_evicted -= usize::from(!is_there);
            }
        }
    }

    /// Forgets names in use of which nothing was heard for long: blocks may lose their names. A
    /// part of them each epoch.
    fn forget_lost_names(&mut self) {
        let now = self.epoch as u16;
        self.names.sweep(self.epoch % AGES, AGES, |entry| {
            entry.bucket != Entry::IN_USE || usize::from(now.wrapping_sub(entry.epoch)) < 2 * AGES
        });
    }

    fn choose(&mut self) {
        let hits = self.shadows.each_ref().map(|shadow| shadow.hits);
        let best = (0..ORDERINGS).max_by(|&a, &b| hits[a].total_cmp(&hits[b])).unwrap_or(0);
        if hits[best] > hits[self.in_force] * TAKE_OVER {
            self.in_force = best;
        }
        self.shadows.iter_mut().for_each(|shadow| shadow.hits *= FADE);
    }

    /// Free names that each ordering would still have.
    #[cfg(test)]
    pub fn num_free(&self) -> [usize; ORDERINGS] {
        self.shadows.each_ref().map(|shadow| self.num_free - shadow.num_evicted)
    }

    /// Forgets every name; what was learnt stays.
    pub fn forget_all(&mut self) {
        self.names.clear();
        self.buckets.iter_mut().for_each(|bucket| *bucket = Bucket::default());
        self.profile.forget_waiting();
        (self.num_free, self.just_freed) = (0, 0);
        for shadow in &mut self.shadows {
            shadow.num_evicted = 0;
            shadow.ranks.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::blocks::fingerprint::Fingerprint;
    use crate::pool::eviction::adaptive::shadow::table::Name;

    fn name(n: u32) -> Name {
        Name::of(Fingerprint(n))
    }

    /// The names of a pass of traffic, each used and free again, in a pool that has `capacity` of
    /// the sample.
    fn pass(sample: &mut Sample, names: std::ops::Range<u32>, capacity: usize) {
        for name in names.map(|n| name(n + 1)) {
            sample.used(&[name], Use::Computed);
            sample.freed(&[name], 0);
            sample.fit(capacity << sample.num_zeros);
        }
    }

    #[test]
    fn one_name_in_16_is_taken_and_fewer_in_large_pools() {
        for (num_blocks, share) in [(100, 16), (LARGER_POOLS[0], 32), (LARGER_POOLS[1], 64)] {
            let sample = Sample::new(num_blocks);
            assert_eq!((0..1024).filter(|&n| n << 22 < sample.limit()).count(), 1024 / share);
        }
    }

    #[test]
    fn each_ordering_has_as_many_names_as_the_pool() {
        let mut sample = Sample::new(1000);
        pass(&mut sample, 0..50, 20);
        assert!(sample.num_free() == [20; 3]);
        // The oldest 30 are gone.
        pass(&mut sample, 29..30, 20);
        assert!(sample.shadows.iter().all(|shadow| shadow.hits == 0.0));
        pass(&mut sample, 49..50, 20);
        assert!(sample.shadows.iter().all(|shadow| shadow.hits == 1.0));
    }

    #[test]
    fn what_each_ordering_would_have_kept_is_counted() {
        let mut sample = Sample::new(1000);
        pass(&mut sample, 0..50, 20);
        assert_eq!(*sample.counts(), SampleCounts { asked: 50, ..SampleCounts::default() });
        pass(&mut sample, 29..30, 20); // gone
        pass(&mut sample, 48..49, 20);
        sample.used(&[name(50)], Use::Hit);
        sample.used(&[name(50)], Use::Computed); // somebody uses it
        assert_eq!(*sample.counts(), SampleCounts { asked: 54, hit: 1, kept: [3; 3] });
        sample.forget_all();
        sample.used(&[name(50)], Use::Computed);
        assert_eq!(*sample.counts(), SampleCounts { asked: 55, hit: 1, kept: [3; 3] });
    }

    #[test]
    fn a_name_in_use_is_no_hit() {
        let mut sample = Sample::new(1000);
        pass(&mut sample, 0..1, 20);
        (0..3).for_each(|_| sample.used(&[name(1)], Use::Hit));
        assert!(
            sample.shadows.iter().all(|shadow| shadow.hits == 1.0) && sample.num_free() == [0; 3]
        );
    }

    #[test]
    fn the_ordering_that_would_have_hit_most_is_in_force() {
        let mut sample = Sample::new(1000);
        assert_eq!(sample.ordering(), Ordering::Frequency);
        sample.shadows[0].hits = 100.0;
        sample.shadows[1].hits = 99.0;
        sample.end_epoch();
        assert_eq!(sample.ordering(), Ordering::Frequency, "too little more");
        sample.shadows[2].hits = 103.0;
        sample.end_epoch();
        assert_eq!(sample.ordering(), Ordering::Hazard);
        assert!(sample.shadows[2].hits < 103.0, "old hits count less");
    }

    /// A scan that comes back at one age shows that age; the other orderings lose all of it.
    #[test]
    fn a_cyclic_scan_is_for_the_hazards() {
        let mut sample = Sample::new(1000);
        for _ in 0..20 {
            for first in (0..100).step_by(4) {
                pass(&mut sample, first..first + 4, 50);
                sample.end_epoch();
            }
        }
        assert_eq!(sample.ordering(), Ordering::Hazard);
        assert_eq!(sample.shadows[0].hits, 0.0);
    }

    #[test]
    fn names_are_forgotten_after_all_ages() {
        let mut sample = Sample::new(1000);
        pass(&mut sample, 0..5, 20);
        sample.used(&[name(77)], Use::Computed);
        (1..AGES).for_each(|_| sample.end_epoch());
        assert_eq!((sample.names.len(), sample.num_free()[0]), (6, 5));
        sample.end_epoch();
        assert_eq!((sample.names.len(), sample.num_free()[0]), (1, 0));
        (0..2 * AGES).for_each(|_| sample.end_epoch());
        assert!(sample.names.len() == 0, "one in use of which nothing was heard");
    }

    #[test]
    fn an_emptied_cache_has_no_names_and_the_same_profile() {
        let mut sample = Sample::new(1000);
        pass(&mut sample, 0..5, 20);
        pass(&mut sample, 0..5, 20);
        let values = *sample.values();
        sample.forget_all();
        assert!(sample.names.len() == 0 && *sample.values() == values);
        assert!(
            sample.shadows.iter().all(|shadow| shadow.hits == 5.0) && sample.num_free() == [0; 3]
        );
        pass(&mut sample, 0..5, 20);
        assert!(
            sample.shadows.iter().all(|shadow| shadow.hits == 5.0) && sample.num_free() == [5; 3]
        );
    }

    #[test]
    fn names_that_come_and_go_within_an_epoch_leave_no_gaps_behind() {
        let mut sample = Sample::new(1000);
        pass(&mut sample, 0..50, 20);
        for _ in 0..100 {
            pass(&mut sample, 45..50, 20);
        }
        let bucket = &sample.buckets[0];
        assert_eq!((bucket.names().count(), sample.num_free()), (50, [20; 3]));
        assert!(bucket.len() < 200, "{} places for 50 names", bucket.len());
        assert_eq!(sample.counts().kept, [500; 3]);
        pass(&mut sample, 29..30, 20);
        pass(&mut sample, 31..32, 20);
        assert_eq!(sample.counts().kept, [501; 3], "the 20 last used are there");
    }
}
